"""Single-bit corruption in every file of a log: it is reported, never served, and all other batches stay readable."""

import pytest
from log_fixture import DIRECTORY, MARKS, TOPIC_ID, LogFixture

from cordwood.storage.batch import check
from cordwood.storage.errors import DamagedLog, OffsetOutOfRange
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.log import Log
from cordwood.storage.verify import verify_partition

VALUES = [f"value {number}" for number in range(12)]
ZEROS_TRIED = 100
"""Bytes tried in the preallocated space after the last batch."""


def a_log(stop: str) -> LogFixture:
    """Return a stopped log of three segments with two leader epochs. The last segment is checkpointed in part."""
    log = LogFixture().configure(segment_bytes=400, index_interval_bytes=150)
    log.append(*VALUES[:6]).flush().leader_epoch = 1
    log.append(*VALUES[6:9]).flush().checkpoint()
    log.append(*VALUES[9:]).flush()
    return log.close() if stop == "close" else log.kill()


def file_sizes(stop: str) -> dict[str, int]:
    """Return the number of bytes to flip in each file, by path."""
    log = a_log(stop)
    sizes = {path: len(log.disk.content(path)) for path in log.disk.files()}
    return {path: min(size, len(log.disk.content(path).rstrip(b"\0")) + ZEROS_TRIED) for path, size in sizes.items()}


EVERY_FILE = [(stop, path) for stop in ("close", "kill") for path in sorted(file_sizes(stop))]


def named(log: LogFixture) -> set[str]:
    """Return the files that verification of the stopped log reports as damaged."""
    marks = FlushedOffsets(log.disk.open(MARKS))
    findings = verify_partition(log.disk, DIRECTORY, marks.get(TOPIC_ID, 0))
    return {damage.path for damage in marks.damage} | {finding.path for finding in findings}


def sound(log: Log, offset: int) -> bytes | None:
    """Return the batch that the log serves at `offset`; None where the log refuses the read."""
    try:
        return log.read(offset, 1, log.log_end)
    except (DamagedLog, OffsetOutOfRange):
        return None


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_a_sound_log_is_found_sound(stop: str) -> None:
    log = a_log(stop)
    assert named(log) == set()
    assert (log.reopen().values(), log.damage) == (VALUES, [])


@pytest.mark.parametrize(("stop", "path"), EVERY_FILE, ids=lambda part: part.rpartition("/")[2])
def test_every_flipped_bit_is_named(stop: str, path: str) -> None:
    log = a_log(stop)
    unnamed = []
    for position in range(file_sizes(stop)[path]):
        bit = position * 5 % 8
        log.disk.flip(path, position, bit)
        if path not in named(log):
            unnamed.append(position)
        log.disk.flip(path, position, bit)
    assert unnamed == []


@pytest.mark.parametrize(("stop", "path"), EVERY_FILE, ids=lambda part: part.rpartition("/")[2])
def test_no_flipped_bit_is_ever_served(stop: str, path: str) -> None:
    pristine = a_log(stop).reopen()
    batches = [pristine.read(offset, 1) for offset in range(12)]
    for position in range(file_sizes(stop)[path]):
        log = a_log(stop)
        log.disk.flip(path, position, position * 3 % 8)
        log.reopen()
        assert log.end >= 12, f"byte {position}: no offset is given to another record"
        served = [sound(log.log, offset) for offset in range(12)]
        wrong = [offset for offset in range(12) if served[offset] not in (batches[offset], None)]
        assert wrong == [], f"byte {position}: what is served is what was written"
        assert served.count(None) <= (3 if path.endswith(".log") else 0), f"byte {position}: the neighbours are served"
        appended = log.append_batch("after").base_offset
        log.flush().kill().reopen()
        after = sound(log.log, appended)
        assert after is not None
        assert check(after).base_offset == appended
        assert [sound(log.log, offset) for offset in range(12)] == served, f"byte {position}: nor after a restart"


@pytest.mark.parametrize(("position", "bit"), [(0, 0), (4, 6), (7, 1), (7, 6)])
def test_an_offset_that_has_rotted_to_a_higher_one_is_no_gap_of_a_compacted_log(position: int, bit: int) -> None:
    log = LogFixture().configure(compacted=True).append(*VALUES).flush().kill()
    log.disk.flip(f"{DIRECTORY}/{0:020}.log", position=position, bit=bit)
    log.reopen()
    assert log.log.damage
    assert log.log.log_end >= len(VALUES)
