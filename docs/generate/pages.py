"""The little Markdown that generated pages need."""

from collections.abc import Iterable, Iterator, Sequence


def heading_note(source: str) -> str:
    """Return a note for readers who open a generated page to change it."""
    return f"<!-- Made by `python docs/generate` from {source}: change it there. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table. A bar within a cell is written as an entity."""
    yield _row(headings)
    yield _row(["---"] * len(headings))
    for row in rows:
        yield _row([cell.replace("|", "&#124;").replace("\n", " ") for cell in row])


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"
