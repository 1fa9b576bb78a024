"""The list of architecture decisions, from the first line of each."""

from pathlib import Path

import pages


def page(folder: Path) -> str:
    """docs/adr/index.md."""
    records = sorted(path for path in folder.glob("*.md") if path.name != "index.md")
    lines = [
        "# Decisions",
        "",
        pages.heading_note("the pages of docs/adr"),
        "Decisions for which there was a reasonable alternative, with their reasons. Each page is half a page long.",
        "",
        *(f"- [{_title(record)}]({record.name})" for record in records),
    ]
    return "\n".join(lines) + "\n"


def _title(record: Path) -> str:
    # "7. A title" at the start of a list item would begin a list of its own.
    return record.read_text("utf-8").partition("\n")[0].removeprefix("# ").replace(". ", ": ", 1)
