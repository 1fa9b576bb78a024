"""A flame graph as one SVG: a box for each function below its caller, as wide as its share of the samples."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

from cordwood.bench.profile.stages import IDLE, Stack, function_of, stage_of

WIDTH, ROW, MARGIN, HEAD = 1600, 17, 10, 30
SHARE_MIN = 0.0005
"""Boxes of less than a pixel are left out."""
CHARACTER_WIDTH = 6.7

_STYLE = """
text { font: 11px ui-monospace, monospace; fill: #1b1b1b; pointer-events: none }
.title { font: 14px system-ui, sans-serif }
rect { stroke: #fff; stroke-width: .5 }
g:hover rect { stroke: #000 }
svg { background: #fff }
"""


@dataclass(slots=True)
class Node:
    """A function under one chain of callers."""

    samples: int = 0
    callees: dict[str, "Node"] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((callee.depth() for callee in self.callees.values()), default=0)


def tree(stacks: Iterable[Stack]) -> Node:
    """Merge the stacks from their outermost frames on. Waiting threads are left out, so that the work is visible."""
    root = Node()
    for frames, count in stacks:
        stage = stage_of(frames)
        if stage is None or stage == IDLE:
            continue
        root.samples += count
        node = root
        for frame in _from_the_loop_on(frames):
            node = node.callees.setdefault(function_of(frame), Node())
            node.samples += count
    return root


def draw(root: Node, title: str) -> str:
    """Return the SVG. The tooltip of a box has its whole name, samples and share."""
    height = HEAD + root.depth() * ROW + MARGIN
    boxes = "\n".join(_boxes(root, "all", MARGIN, 0, root.samples)) if root.samples else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<text class="title" x="{MARGIN}" y="20">{escape(title)}</text>\n{boxes}\n</svg>\n'
    )


def _boxes(node: Node, name: str, left: float, level: int, total: int) -> Iterator[str]:
    share = node.samples / total
    if share < SHARE_MIN:
        return
    width = share * (WIDTH - 2 * MARGIN)
    top = HEAD + level * ROW
    caption = f"{name}: {node.samples:,} samples, {share:.1%}"
    room = int((width - 4) / CHARACTER_WIDTH)
    shown = "" if room < 3 else name if len(name) <= room else name[: room - 1] + "…"
    yield (
        f'<g><title>{escape(caption)}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" '
        f'fill="{_colour(name)}" rx="1"/><text x="{left + 3:.1f}" y="{top + 12}">{escape(shown)}</text></g>'
    )
    for callee, below in sorted(node.callees.items()):
        yield from _boxes(below, callee, left, level + 1, total)
        left += below.samples / total * (WIDTH - 2 * MARGIN)


def _from_the_loop_on(frames: tuple[str, ...]) -> tuple[str, ...]:
    """Cut the frames of interpreter, command line and runner, which are outside of everything."""
    begin = next((place for place, frame in enumerate(frames) if frame.startswith("Runner.run (")), 0)
    return frames[begin:]


def _colour(name: str) -> str:
    """Return warm colours for our own code, cool ones for all other; neighbours differ a little."""
    shade = crc32(name.encode()) % 30
    is_ours = "cordwood/" in name or name.partition(" (")[2].rstrip(")") in (
        "produce.py",
        "produce_response.py",
        "fetch.py",
    )
    return f"hsl({(20 if is_ours else 190) + shade} {75 if is_ours else 40}% {68 + shade % 8}%)"
