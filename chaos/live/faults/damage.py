"""Silent damage to a file of a log directory: flipped bits, a zeroed range, a missing end, or a missing file."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SEGMENTS = "topics/*/*/*.log"
KINDS = {
    "segment": SEGMENTS,
    "closed_segment_while_running": SEGMENTS,
    "zeroed_range_while_running": SEGMENTS,
    "short_segment_while_running": SEGMENTS,
    "missing_segment_while_running": SEGMENTS,
    "missing_segment": SEGMENTS,
    "index": "topics/*/*/*.index",
    "epochs": "topics/*/*/leader-epochs",
    "journal": "metadata/journal",
    "snapshot": "metadata/*.snapshot",
}
"""The files to damage, by kind, as patterns below a log directory."""

WHILE_RUNNING = "_while_running"
"""Suffix of the kinds that damage a sealed segment of a running broker, which has to restore it byte by byte."""
MISSING = "missing_segment"
BYTES_MAX = 8


class Harm(Protocol):
    """Damage to one file, or to a segment and its index. `path` is relative to the data directory."""

    @property
    def path(self) -> Path: ...

    def apply(self, data: Path) -> None:
        """Damage the file. The broker may be running."""
        ...


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one file."""

    path: Path
    position: int
    bit: int

    def apply(self, data: Path) -> None:
        with (data / self.path).open("r+b") as file:
            file.seek(self.position)
            byte = file.read(1)[0]
            file.seek(self.position)
            file.write(bytes([byte ^ (1 << self.bit)]))

    def __str__(self) -> str:
        return f"bit {self.bit} of byte {self.position} of {self.path}"


@dataclass(frozen=True, slots=True)
class Zeros:
    """A range of a file that reads as zeros."""

    path: Path
    position: int
    length: int

    def apply(self, data: Path) -> None:
        with (data / self.path).open("r+b") as file:
            file.seek(self.position)
            file.write(bytes(self.length))

    def __str__(self) -> str:
        return f"{self.length} zeros at byte {self.position} of {self.path}"


@dataclass(frozen=True, slots=True)
class Shortening:
    """A file that ends too early."""

    path: Path
    size: int

    def apply(self, data: Path) -> None:
        with (data / self.path).open("r+b") as file:
            file.truncate(self.size)

    def __str__(self) -> str:
        return f"{self.path} cut to {self.size} bytes"


@dataclass(frozen=True, slots=True)
class SegmentRemoval:
    """A missing segment, with or without its index."""

    path: Path
    with_index: bool

    def apply(self, data: Path) -> None:
        (data / self.path).unlink()
        if self.with_index:
            (data / self.path).with_suffix(".index").unlink(missing_ok=True)

    def __str__(self) -> str:
        return f"{self.path} removed{' with its index' if self.with_index else ''}"


def choose(data: Path, kind: str, rng: random.Random) -> list[Harm]:
    """Return damage to one file of this kind; none where there is no such file yet."""
    files = sorted(path for path in data.glob(KINDS[kind]) if path.is_file() and path.stat().st_size)
    if kind.endswith(WHILE_RUNNING) or kind == MISSING:
        last = {max(path.parent.glob("*.log")) for path in files}
        files = [path for path in files if path not in last]
    files = [path for path in files if path.read_bytes().rstrip(b"\0")]
    if not files:
        return []
    path = rng.choice(files)
    name, size = path.relative_to(data), len(path.read_bytes().rstrip(b"\0"))
    match kind.removesuffix(WHILE_RUNNING):
        case "zeroed_range":
            start = rng.randrange(size)
            return [Zeros(name, start, rng.randrange(size - start) + 1)]
        case "short_segment":
            return [Shortening(name, rng.randrange(size))]
        case "missing_segment":
            return [SegmentRemoval(name, with_index=rng.random() < 0.5)]
        case _:
            positions = rng.sample(range(size), min(rng.randint(1, BYTES_MAX), size))
            return [Flip(name, position, rng.randrange(8)) for position in sorted(positions)]
