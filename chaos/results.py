"""Result files: what one run found, at one commit, in lines of JSON that are sealed.

The first line says what was run and at which commit, the last how many rows there are between them. Each line has a
digest over itself and all lines before it, so that a row that was changed, added or left out is noticed. The pages of
docs/ that tell results are made from these files alone (`python docs/generate`).
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cordwood.chaos.commit import Unclean, clean_commit
from cordwood.cluster.cli.exits import ExitCode, Failure

SEAL = "seal"
SEAL_BYTES = 16

Row = dict[str, Any]


class Broken(ValueError):
    """A result file is not what a run wrote."""


class CannotRecord(Exception):
    """The file, or the source, is not in a state in which this run can be recorded."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a file holds. `about` is of the run as a whole; `is_whole` is False for a run that was broken off."""

    kind: str
    commit: str
    at: str
    machine: Row
    about: Row
    rows: list[Row]
    is_whole: bool


class Record:
    """A result file that is being written, or written on."""

    def __init__(self, path: Path, kind: str, about: Mapping[str, Any]) -> None:
        """Begin it, or go on with what the same run left at the same commit. Raises CannotRecord."""
        try:
            commit = clean_commit()
        except Unclean as reason:
            raise CannotRecord(str(reason)) from None
        self._path, self._commit, self._seal = path, commit, ""
        self.rows: list[Row] = []
        """What it has, of this run and of the calls before that were broken off."""
        self.is_whole = False
        if path.exists() and path.stat().st_size:
            self._go_on(kind, dict(about))
        else:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            machine = {"cores": os.cpu_count(), "python": platform.python_version()}
            self._write({"kind": kind, "commit": commit, "at": at, "machine": machine, "about": dict(about)})

    def add(self, row: Row) -> None:
        """Write a row, sealed. It is there after a crash."""
        self.rows.append(row)
        self._write(row)

    def end(self) -> None:
        """The run is over. Raises CannotRecord where the source has changed under it."""
        try:
            now = clean_commit()
        except Unclean as reason:
            raise CannotRecord(str(reason)) from None
        if now != self._commit:
            raise CannotRecord(f"the run began at commit {self._commit}, and ends at {now}")
        if not self.is_whole:
            self._write({"end": len(self.rows)})
            self.is_whole = True

    def _go_on(self, kind: str, about: Row) -> None:
        try:
            found = read(self._path)
        except Broken as error:
            raise CannotRecord(str(error)) from None
        if found.commit != self._commit:
            raise CannotRecord(f"{self._path} is of commit {found.commit}, and this is {self._commit}: remove it first")
        if (found.kind, found.about) != (kind, about):
            raise CannotRecord(f"{self._path} is of another run: {found.kind} {json.dumps(found.about)}")
        self.rows, self.is_whole = found.rows, found.is_whole
        # A line that a crash cut short is written anew.
        whole = self._path.read_text().rpartition("\n")[0] + "\n"
        self._path.write_text(whole)
        self._seal = json.loads(whole.splitlines()[-1])[SEAL]

    def _write(self, row: Row) -> None:
        self._seal = sealed(self._seal, row)
        with self._path.open("a") as file:
            file.write(json.dumps(row | {SEAL: self._seal}, ensure_ascii=False) + "\n")


def begun(path: Path | None, kind: str, asked: Mapping[str, Any]) -> Record | None:
    """The record of a run that begins; None where none is wanted. Raises Failure."""
    if path is None:
        return None
    try:
        record = Record(path, kind, asked)
    except CannotRecord as reason:
        raise Failure(f"{reason}.", ExitCode.USAGE) from None
    if record.is_whole:
        raise Failure(f"{path} has this run already: remove it first.", ExitCode.USAGE)
    return record


def ended(record: Record | None, summary: Mapping[str, Any]) -> None:
    """Write what came of it. Raises Failure where the source has changed under the run."""
    if record is None:
        return
    try:
        record.add(dict(summary))
        record.end()
    except CannotRecord as reason:
        raise Failure(f"{reason}.") from None


def read(path: Path) -> Result:
    """What a run wrote. Raises Broken."""
    seal, lines = "", []
    for number, line in enumerate(path.read_text().split("\n")[:-1], 1):
        try:
            row = json.loads(line)
            said = row.pop(SEAL)
        except (ValueError, KeyError, AttributeError):
            raise Broken(f"{path.name}, line {number} is no line of a result") from None
        seal = sealed(seal, row)
        if said != seal:
            raise Broken(f"{path.name}, line {number} is not what a run wrote: its seal does not match")
        lines.append(row)
    if not lines or lines[0].keys() < {"kind", "commit", "at", "machine", "about"}:
        raise Broken(f"{path.name} has no first line that says what was run")
    head, *rows = lines
    is_whole = bool(rows) and rows[-1].keys() == {"end"}
    if is_whole and rows.pop()["end"] != len(rows):
        raise Broken(f"{path.name} lacks rows")
    return Result(head["kind"], head["commit"], head["at"], head["machine"], head["about"], rows, is_whole)


def sealed(before: str, row: Mapping[str, Any]) -> str:
    """The digest of a line, given that of the line before it."""
    text = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return blake2b(f"{before}{text}".encode(), digest_size=SEAL_BYTES).hexdigest()
