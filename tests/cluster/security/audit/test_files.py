"""Files of the audit log: every change of a line is found at its place, and a restart continues the chain."""

import errno
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.security.audit.chain import BEGINNING, ChainHead
from cordwood.cluster.security.audit.files import AuditFiles, names_in, verify

FOLDER = "/audit"
FIRST = f"{FOLDER}/audit-0000000000000001.jsonl"


def a_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def opened(disk: SimulatedDisk, file_bytes_max: int = 1 << 20, files_max: int = 10) -> AuditFiles:
    return AuditFiles(disk, FOLDER, file_bytes_max, files_max)


def rows(*names: str) -> list[dict[str, str]]:
    return [{"action": name} for name in names]


def written(*batches: Sequence[str], file_bytes_max: int = 1 << 20) -> SimulatedDisk:
    disk = a_disk()
    files = opened(disk, file_bytes_max)
    for names in batches:
        files.append(rows(*names))
    files.close()
    return disk


def replaced(disk: SimulatedDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwrite([content], 0)
    file.close()


def test_what_is_written_verifies_and_each_line_has_the_hash_of_the_one_before() -> None:
    disk = written(["CREATE_TOPICS"], ["DELETE_TOPICS", "CREATE_ACLS"])
    last, name, broken = verify(disk, FOLDER)
    assert (last.sequence, name, broken) == (3, FIRST.rpartition("/")[2], None)
    first, second, _ = disk.content(FIRST).splitlines()
    assert f'"previous":"{BEGINNING}"'.encode() in first
    assert first[-66:-2] in second


@given(st.data())
def test_every_changed_byte_is_found_in_its_line(data: st.DataObject) -> None:
    disk = written(["CREATE_TOPICS", "DELETE_TOPICS", "CREATE_ACLS", "DELETE_ACLS"])
    content = disk.content(FIRST)
    position = data.draw(st.integers(0, len(content) - 2))
    line = content[:position].count(b"\n") + 1
    changed = bytearray(content)
    changed[position] ^= data.draw(st.integers(1, 255))
    replaced(disk, FIRST, bytes(changed))
    last, _, broken = verify(disk, FOLDER)
    assert broken is not None
    assert (broken.line, last.sequence) == (line, line - 1)


def test_a_removed_line_is_found_where_the_next_one_stands() -> None:
    disk = written(["A", "B", "C"])
    lines = disk.content(FIRST).splitlines(keepends=True)
    replaced(disk, FIRST, lines[0] + lines[2])
    last, _, broken = verify(disk, FOLDER)
    assert broken is not None
    assert (broken.line, last.sequence) == (2, 1)
    assert "sequence number 3 where 2" in broken.reason


def test_a_line_that_was_made_anew_with_a_hash_of_its_own_breaks_the_next() -> None:
    disk, forged = written(["A", "B", "C"]), written(["A", "X", "C"])
    lines, other = disk.content(FIRST).splitlines(keepends=True), forged.content(FIRST).splitlines(keepends=True)
    replaced(disk, FIRST, lines[0] + other[1] + lines[2])
    _, _, broken = verify(disk, FOLDER)
    assert broken is not None
    assert (broken.line, broken.reason) == (3, "it does not follow from the line before it")


def test_a_restart_continues_the_chain() -> None:
    disk = written(["A"])
    files = opened(disk)
    files.append(rows("B"))
    files.close()
    assert verify(disk, FOLDER)[0].sequence == 2
    assert verify(disk, FOLDER)[2] is None


def test_an_incomplete_last_line_is_cut_off() -> None:
    disk = written(["A", "B"])
    content = disk.content(FIRST)
    replaced(disk, FIRST, content[:-20])
    files = opened(disk)
    assert files.cut_off_bytes == len(content.splitlines()[1]) - 19
    files.append(rows("C"))
    files.close()
    assert verify(disk, FOLDER)[0].sequence == 2
    assert verify(disk, FOLDER)[2] is None


def test_a_rotation_keeps_the_chain_and_the_newest_files() -> None:
    disk = a_disk()
    files = opened(disk, file_bytes_max=1, files_max=3)
    for name in "ABCDE":
        files.append(rows(name))
    files.close()
    assert names_in(disk, FOLDER) == [f"audit-{number:016}.jsonl" for number in (3, 4, 5)]
    assert verify(disk, FOLDER)[2] is None
    assert verify(disk, FOLDER)[0].sequence == 5


def test_a_file_that_is_missing_in_between_is_found() -> None:
    disk = written(["A"], ["B"], ["C"], file_bytes_max=1)
    disk.remove(f"{FOLDER}/audit-0000000000000002.jsonl")
    last, name, broken = verify(disk, FOLDER)
    assert broken is not None
    assert (last.sequence, name) == (1, "audit-0000000000000003.jsonl")


def test_a_crash_after_a_rotation_leaves_an_empty_file_which_continues_the_chain() -> None:
    disk = written(["A"], ["B"], file_bytes_max=1)
    disk.open(f"{FOLDER}/audit-0000000000000003.jsonl", create=True).close()
    files = opened(disk)
    files.append(rows("C"))
    files.close()
    assert verify(disk, FOLDER)[2] is None
    assert verify(disk, FOLDER)[0].sequence == 3


def test_a_log_of_which_the_last_line_was_changed_goes_on_and_keeps_the_evidence() -> None:
    disk = written(["A", "B"])
    replaced(disk, FIRST, disk.content(FIRST).replace(b'"B"', b'"X"'))
    files = opened(disk)
    assert files.last == ChainHead(2)
    files.append(rows("C"))
    files.close()
    last, _, broken = verify(disk, FOLDER)
    assert broken is not None
    assert (broken.line, last.sequence) == (2, 1)


def test_after_a_full_disk_the_same_lines_are_written_once() -> None:
    disk = written(["A"])
    files = opened(disk)
    disk.leave_free(0)
    with pytest.raises(OSError, match="No space") as refused:
        files.append(rows(*"BCDEFGHIJKLMNOPQRSTUVWXYZ" * 20))
    assert refused.value.errno == errno.ENOSPC
    disk.leave_free(1 << 20)
    files.append(rows("B"))
    files.close()
    assert verify(disk, FOLDER)[0].sequence == 2
    assert verify(disk, FOLDER)[2] is None
