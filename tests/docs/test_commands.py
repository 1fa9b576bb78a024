"""Commands in the documentation: each exists with the options that a page gives it; docs/command-line.md has all."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from cordwood.cluster.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDED = {"mutants.md", "performance.md", "growth.md", "chaos-results.md"}
"""Pages that are made from recorded runs, with the commands of that time."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "compose.yaml")),
    *(page for page in sorted(DOCS.rglob("*.md")) if page.name not in RECORDED),
]
PROGRAM = typer.main.get_command(app)
OF_ALL = {"-h", "--help"}
BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
INDENTED = re.compile(r"^    (cordwood .*)$", re.MULTILINE)
INLINE = re.compile(r"`(cordwood [^`]+)`")


def commands_of(text: str) -> Iterator[str]:
    """Yield the `cordwood` commands of a page, one line each. `a b | c` in a table is the commands `a b` and `a c`."""
    for block in [*BLOCK.findall(text), "\n".join(INDENTED.findall(text))]:
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            parts = re.split(r"\s\|\s|\s&&\s", re.sub(r"^\s*\$ ", "", line))
            yield from (part.strip() for part in parts if part.strip().startswith("cordwood "))
    for inline in INLINE.findall(BLOCK.sub("", text)):
        first, *others = re.split(r"\s*\\?\|\s*", re.sub(r"\s+", " ", inline))
        yield first
        *group, _ = first.split()
        yield from (" ".join([*group, other]) for other in others)


def mistake_in(line: str) -> str | None:
    """Return what is wrong with a command, if it names a command or an option that does not exist."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        # A quotation that goes on in the next line.
        words = line.split()
    command: Any = PROGRAM
    options = set(OF_ALL)
    for word in words[1:]:
        if isinstance(command, TyperGroup) and not word.startswith("-"):
            command = command.get_command(typer.Context(command), word)
            if command is None:
                return f"no command {word}: {line}"
        elif re.match(r"--?[a-z]", word) and word.split("=")[0] not in options | options_of(command):
            return f"no option {word}: {line}"
    return None


def options_of(command: Any) -> set[str]:
    return {name for each in command.params for name in [*each.opts, *each.secondary_opts]}


def paths_of(group: TyperGroup, *path: str) -> Iterator[str]:
    """Yield the visible commands of a group, with the words before them."""
    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        if isinstance(command, TyperGroup):
            yield from paths_of(command, *path, name)
        elif not command.hidden:
            yield " ".join([*path, name])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    assert [mistake for line in commands_of(page.read_text()) if (mistake := mistake_in(line))] == []


def test_the_page_of_the_command_line_has_every_command() -> None:
    stated = list(commands_of((DOCS / "command-line.md").read_text()))
    paths = list(paths_of(PROGRAM, "cordwood"))
    assert len(paths) > 70
    assert [path for path in paths if not any(f"{line} ".startswith(f"{path} ") for line in stated)] == []


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("`cordwood topic list \\| crate`", "no command crate: cordwood topic crate"),
        ("```console\n$ printf x | cordwood produce t --ack 1\n```", "no option --ack: cordwood produce t --ack 1"),
        ("    cordwood chaos sim --seed 1 --fast", "no option --fast: cordwood chaos sim --seed 1 --fast"),
        ("`cordwood\nstatus -b localhost:9092`", None),
    ],
)
def test_a_wrong_command_is_found(text: str, mistake: str | None) -> None:
    assert [found for line in commands_of(text) if (found := mistake_in(line))] == [mistake] * (mistake is not None)
