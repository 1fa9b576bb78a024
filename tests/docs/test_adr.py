"""Architecture decision records: one template, and a number of its own for each."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
HEADINGS = ["Status", "Context", "Decision", "Consequences"]


def sections(text: str) -> dict[str, str]:
    """Return the text of each second-level section by its heading."""
    _, *parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {heading: body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_every_record_has_the_template_s_headings(record: Path) -> None:
    text = record.read_text()
    assert list(sections(text)) == HEADINGS
    assert all(sections(text).values()), "a section is empty"
    assert re.match(r"(Accepted|Proposed|Rejected|Replaced)\b.*\.$", sections(text)["Status"]), (
        "the status is not known"
    )
    assert text.startswith(f"# {int(record.name[:4])}. "), "the title does not begin with the number of the file"


def test_no_number_is_given_twice() -> None:
    numbers = [record.name[:4] for record in RECORDS]
    assert sorted(set(numbers)) == numbers
