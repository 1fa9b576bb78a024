"""docs/glossary.md is in alphabetical order, and each of Cordwood's own terms still occurs in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("storage", "replication", "cluster", "chaos", "bench", "spark", "client", "columnar", "archive")
PAGE = (ROOT / "docs" / "glossary.md").read_text()
TERMS = re.findall(r"^\| (?!term )([a-z][^|]*) \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def code() -> str:
    """Return all Python source of the packages, with spaces for the underscores in identifiers."""
    texts = (path.read_text() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return "\n".join(texts).replace("_", " ").lower()


def test_terms_are_in_alphabetical_order() -> None:
    assert sorted(set(TERMS)) == TERMS
    assert len(TERMS) > 20


@pytest.mark.parametrize("term", TERMS)
def test_a_term_occurs_in_the_code(term: str, code: str) -> None:
    assert re.search(rf"\b{re.escape(term)}", code), f"no line of code says {term!r} any more: remove it"
