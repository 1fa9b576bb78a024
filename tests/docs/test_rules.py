"""docs/rules.md has every rule that the code cites, and every module, test and mutant that it names exists."""

import re
from pathlib import Path

import pytest

from cordwood.chaos.mutants.catalogue import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "rules.md"
KINDS = {
    "promise": "promise",
    "rule": "rule",
    "group rule": "group rule",
    "share rule": "share rule",
    "transaction rule": "transaction rule",
    "disk rule": "disk rule",
    "Archive rule": "archive rule",
    "Raft rule": "raft rule",
}
"""The first heading of each table, and its citation form in lower case."""
CITATION = re.compile(
    r"\b((?:transaction |group |share |disk |archive |raft )?rule|promise)s? (\d+)(?:(?:,| and| to) (\d+))?",
    re.IGNORECASE,
)
NAME = re.compile(r"`([\w/.-]+)`")
FOLDERS = ("bench", "chaos", "client", "cluster", "columnar", "docs", "replication", "spark", "storage", "tests")


def tables() -> dict[str, dict[int, list[str]]]:
    """Return the cells of each rule, by kind and number."""
    found: dict[str, dict[int, list[str]]] = {}
    kind = ""
    for line in RULES.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in KINDS:
            kind = KINDS[cells[0]]
        elif line.startswith("|") and cells[0].isdigit():
            assert int(cells[0]) not in found.setdefault(kind, {}), f"{kind} {cells[0]} is there twice"
            found[kind][int(cells[0])] = cells
    return found


def citations(text: str) -> set[tuple[str, int]]:
    """Return the citations in a text, by kind and number."""
    found = CITATION.findall(text)
    return {(kind.lower(), int(number)) for kind, *numbers in found for number in numbers if number}


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("rule 5, KIP-497", {("rule", 5)}),
        ("Rules 3 and 7", {("rule", 3), ("rule", 7)}),
        ("promise 2; disk rule 4", {("promise", 2), ("disk rule", 4)}),
        ("Raft rule 6", {("raft rule", 6)}),
        ("transaction rule 5", {("transaction rule", 5)}),
        ("archive rule 1", {("archive rule", 1)}),
        ("share rule 2", {("share rule", 2)}),
        ("rule-11, the ruler 5", set()),
    ],
)
def test_a_citation_is_recognised(text: str, cited: set[tuple[str, int]]) -> None:
    assert citations(text) == cited


def test_every_rule_that_is_cited_exists() -> None:
    known = tables()
    assert list(known) == list(KINDS.values())
    unknown = [
        f"{path.relative_to(ROOT)}: {kind} {number}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md"} and path != Path(__file__)
        for kind, number in sorted(citations(path.read_text()))
        if number not in known[kind]
    ]
    assert not unknown


def test_every_rule_names_what_keeps_and_what_proves_it() -> None:
    for kind, rules in tables().items():
        for number, (_, statement, source, kept_in, proven_by) in rules.items():
            where = f"{kind} {number}"
            assert statement.endswith("."), where
            assert source, where
            modules, proofs = NAME.findall(kept_in), NAME.findall(proven_by)
            assert modules, f"{where} is kept by no module"
            assert proofs, f"{where} is proven by nothing"
            missing = [module for module in modules if not (ROOT / module).exists()]
            missing += [proof for proof in proofs if proof not in BY_NAME and not (ROOT / proof).exists()]
            assert not missing, f"{where} names {missing}"
            broken = {BY_NAME[proof].file for proof in proofs if proof in BY_NAME}
            assert broken <= set(modules), f"{where} is also kept in {broken - set(modules)}, by its mutants"
