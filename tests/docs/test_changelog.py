"""CHANGELOG.md has Keep a Changelog's sections in order, and pyproject.toml and the package state one version."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "CHANGELOG.md").read_text().splitlines()
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
VERSION = re.compile(r"## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}")


def test_versions_begin_with_unreleased() -> None:
    versions = [line for line in LINES if line.startswith("## ")]
    assert versions[0] == "## [Unreleased]"
    assert all(VERSION.fullmatch(line) for line in versions[1:])


def test_sections_are_those_of_keep_a_changelog() -> None:
    within: list[str] = []
    for line in LINES:
        if line.startswith("## "):
            within = []
        elif line.startswith("### "):
            within.append(line.removeprefix("### "))
            assert within == [section for section in SECTIONS if section in within], "unknown, repeated or out of order"
        elif within:
            assert re.match(r"- |  \S|$", line), f"not an entry of a list: {line}"


def test_the_version_is_the_same_everywhere() -> None:
    stated = [
        re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE),
        re.search(r'^__version__ = "(.+)"$', (ROOT / "src/cordwood/__init__.py").read_text(), re.MULTILINE),
    ]
    assert len({match and match[1] for match in stated}) == 1
