"""The twelve questions of docs/contributing.md: each search finds its one file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("storage", "replication", "cluster", "columnar", "spark")
ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| `(?P<term>[^`]+)` \| `(?P<file>[^`]+)` \| [^|]+ \|$", re.MULTILINE)
ROWS = [match.groupdict() for match in ROW.finditer((ROOT / "docs" / "contributing.md").read_text())]


def test_there_are_twelve() -> None:
    assert len(ROWS) == 12


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["question"])
def test_a_search_finds_one_file(row: dict[str, str]) -> None:
    term = re.compile(row["term"], re.MULTILINE)
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if term.search(path.read_text())]
    assert [path.relative_to(ROOT).as_posix() for path in files] == [row["file"]]
