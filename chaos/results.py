"""Result files: the findings of one run at one commit, as lines of JSON with chained digests.

The first line names the run and its commit; the last line has the number of rows between the two. The seal of each line
is a digest of that line and all lines before, so that a changed, added or missing row is detected. The result pages of
docs/ are generated from these files only (`python docs/generate`).
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
from cordwood.cluster.cli.exits import ExitCode, Failure, reason_of

SEAL = "seal"
SEAL_BYTES = 16

Row = dict[str, Any]


class InvalidResultFile(ValueError):
    """A result file is not as a run wrote it."""


class CannotRecord(Failure):
    """The file, or the source tree, is in a state in which this run cannot be recorded."""

    def __init__(self, reason: object, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(f"{reason}.", exit_code)


@dataclass(frozen=True, slots=True)
class Result:
    """The contents of a result file. `about` describes the whole run; `is_whole` is False for an interrupted run."""

    kind: str
    commit: str
    at: str
    machine: Row
    about: Row
    rows: list[Row]
    is_whole: bool


class ResultFile:
    """A result file that is being written, or continued."""

    def __init__(self, path: Path, kind: str, about: Mapping[str, Any]) -> None:
        """Start a result file, or continue one that the same run left at the same commit. Raises CannotRecord."""
        try:
            commit = clean_commit()
        except Unclean as reason:
            raise CannotRecord(reason) from None
        self._path, self._commit, self._seal = path, commit, ""
        self.rows: list[Row] = []
        """All rows so far, including those of earlier, interrupted calls."""
        self.is_whole = False
        try:
            if path.exists() and path.stat().st_size:
                self._go_on(kind, dict(about))
            else:
                self._begin(kind, dict(about))
        except OSError as error:
            raise CannotRecord(f"{path} cannot be written: {reason_of(error)}") from None

    def add(self, row: Row) -> None:
        """Write one sealed row. The row is in the file before `add` returns."""
        self.rows.append(row)
        self._write(row)

    def end(self) -> None:
        """Complete the file. Raises CannotRecord where the source tree has changed during the run."""
        try:
            now = clean_commit()
        except Unclean as reason:
            raise CannotRecord(reason, ExitCode.FAILED) from None
        if now != self._commit:
            raise CannotRecord(f"the run began at commit {self._commit}, and ends at {now}", ExitCode.FAILED)
        if not self.is_whole:
            self._write({"end": len(self.rows)})
            self.is_whole = True

    def _begin(self, kind: str, about: Row) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        self._write({"kind": kind, "commit": self._commit, "at": at, "machine": machine, "about": about})

    def _go_on(self, kind: str, about: Row) -> None:
        try:
            found = read(self._path)
        except InvalidResultFile as error:
            raise CannotRecord(error) from None
        if found.commit != self._commit:
            raise CannotRecord(f"{self._path} is of commit {found.commit}, and this is {self._commit}: remove it first")
        if (found.kind, found.about) != (kind, about):
            raise CannotRecord(f"{self._path} is of another run: {found.kind} {json.dumps(found.about)}")
        self.rows, self.is_whole = found.rows, found.is_whole
        # Drop a last line that a crash cut short; the row is written again.
        whole = self._path.read_text().rpartition("\n")[0] + "\n"
        self._path.write_text(whole)
        self._seal = json.loads(whole.splitlines()[-1])[SEAL]

    def _write(self, row: Row) -> None:
        self._seal = sealed(self._seal, row)
        with self._path.open("a") as file:
            file.write(json.dumps(row | {SEAL: self._seal}, ensure_ascii=False) + "\n")


def begun(path: Path | None, kind: str, asked: Mapping[str, Any]) -> ResultFile | None:
    """Return the record of a run that begins; None where `path` is None. Raises CannotRecord."""
    if path is None:
        return None
    record = ResultFile(path, kind, asked)
    if record.is_whole:
        raise CannotRecord(f"{path} has this run already: remove it first")
    return record


def ended(record: ResultFile | None, summary: Mapping[str, Any]) -> None:
    """Write the summary of the run and complete the file. Raises CannotRecord where the source tree has changed."""
    if record is None:
        return
    record.add(dict(summary))
    record.end()


def read(path: Path) -> Result:
    """Read a result file. Raises Broken."""
    seal, lines = "", []
    for number, line in enumerate(path.read_text().split("\n")[:-1], 1):
        try:
            row = json.loads(line)
            said = row.pop(SEAL)
        except (ValueError, KeyError, AttributeError):
            raise InvalidResultFile(f"{path.name}, line {number} is no line of a result") from None
        seal = sealed(seal, row)
        if said != seal:
            raise InvalidResultFile(f"{path.name}, line {number} is not what a run wrote: its seal does not match")
        lines.append(row)
    if not lines or lines[0].keys() < {"kind", "commit", "at", "machine", "about"}:
        raise InvalidResultFile(f"{path.name} has no first line that says what was run")
    head, *rows = lines
    is_whole = bool(rows) and rows[-1].keys() == {"end"}
    if is_whole and rows.pop()["end"] != len(rows):
        raise InvalidResultFile(f"{path.name} lacks rows")
    return Result(head["kind"], head["commit"], head["at"], head["machine"], head["about"], rows, is_whole)


def sealed(before: str, row: Mapping[str, Any]) -> str:
    """Return the digest of a line, chained to the digest of the line before."""
    text = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return blake2b(f"{before}{text}".encode(), digest_size=SEAL_BYTES).hexdigest()
