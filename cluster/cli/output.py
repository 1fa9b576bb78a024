"""Output of commands: tables or JSON on standard output, notes and progress on standard error."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

UNBOUNDED_COLUMNS = 100_000
"""Width of a table in a pipe: no line is wrapped or cut."""


def print_json(value: Any) -> None:
    """Print one JSON document, indented."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """Print one JSON object on one line, for output without a known end."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headings: numbers are aligned right, lists are joined with commas, None is a dash."""
    console().print(table(headings, rows))


def print_rows(rows: Sequence[Mapping[str, object]], headings: Sequence[str], as_json: bool, if_none: str) -> None:
    """Print the rows of a list as JSON or as a table; for an empty table, the note `if_none`."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(headings, [list(row.values()) for row in rows])
    else:
        note(if_none)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> "Table":
    """Return the table that `print_table` prints."""
    from rich.table import Table

    cells = [list(row) for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column, heading in enumerate(headings):
        is_number = bool(cells) and all(isinstance(row[column], int | None) for row in cells)
        made.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        made.add_row(*map(_cell, row))
    return made


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)


def console() -> "Console":
    """Return standard output as a rich console, as wide as its terminal. Text is printed as it is, without markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else UNBOUNDED_COLUMNS
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def size_text(size: float) -> str:
    """Return a number of bytes with three digits and a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def note(sentence: str) -> None:
    """Print a sentence that is not part of the command's output."""
    typer.echo(sentence, err=True)


@contextmanager
def progress_bar(doing: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error while the block runs. Yield a function that takes each further number of bytes.

    Without a terminal on standard error nothing is drawn. `total` is None if it is unknown.
    """
    if not sys.stderr.isatty():
        yield lambda _amount: None
        return
    from rich import progress
    from rich.console import Console

    described = progress.TextColumn("{task.description}")
    columns = (described, progress.BarColumn(), progress.DownloadColumn(), progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(doing, total=total)
        yield lambda amount: bars.advance(task, amount)
