"""The broker-wide cache of open files and indexes of sealed segments: its limits, eviction and thread safety."""

import random
import sys
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from log_fixture import ALL_BYTES, SMALL, START_MS

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.batch import check, split
from cordwood.storage.disk import Disk
from cordwood.storage.errors import OutOfResources
from cordwood.storage.index import Index, Interval
from cordwood.storage.log import Log
from cordwood.storage.log_loader import open_log
from cordwood.storage.open_segments import ABORTED_BYTES_MAX, FILES_MAX, FILES_MIN, OpenSegments
from cordwood.storage.real_disk import RealDisk
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.steps import at_once
from cordwood.storage.timestamps import first_at_or_after, latest_by_time

LOGS = 5
VALUES = 240
"""Records in each log: about 20 segments."""
LIMIT = FILES_MIN + 2 * LOGS


def filled(disk: Disk, directory: str, opened: OpenSegments) -> Log:
    log = Log(disk, directory, SMALL, opened)
    for number in range(VALUES):
        batch = encode([Record(0, START_MS + number, None, f"{directory} {number}".encode())])
        log.append(batch, check(batch), 0, START_MS)
    log.close()
    return open_log(disk, directory, SMALL, None, START_MS, opened)


def values(log: Log) -> list[str]:
    found: list[str] = []
    offset = 0
    while data := log.read(offset, ALL_BYTES, log.log_end):
        for batch in split(data):
            found += [(record.value or b"").decode() for record in decode(bytes(batch))]
            offset = check(batch).end
    return found


def expected(directory: str) -> list[str]:
    return [f"{directory} {number}" for number in range(VALUES)]


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories("/data")
    return disk


@pytest.fixture
def opened() -> OpenSegments:
    return OpenSegments(files_max=LIMIT, index_bytes_max=1000)


@pytest.fixture
def logs(disk: SimulatedDisk, opened: OpenSegments) -> dict[str, Log]:
    return {directory: filled(disk, directory, opened) for directory in [f"/data/{name}" for name in "abcde"[:LOGS]]}


def test_reading_everything_leaves_no_more_open_than_the_limit(
    disk: SimulatedDisk, opened: OpenSegments, logs: dict[str, Log]
) -> None:
    assert sum(len(log.segments) for log in logs.values()) > 2 * LIMIT
    for directory, log in logs.items():
        assert values(log) == expected(directory)
        assert disk.open_count <= LIMIT
        assert opened.index_bytes <= 1000


def test_questions_by_time_leave_no_more_open_than_the_limit(
    disk: SimulatedDisk, opened: OpenSegments, logs: dict[str, Log]
) -> None:
    for log in logs.values():
        for number in range(0, VALUES, 7):
            found = at_once(first_at_or_after(log, START_MS + number, log.log_end))
            assert found is not None
            assert found.offset == number
        latest = at_once(latest_by_time(log, log.log_end))
        assert latest is not None
        assert latest.offset == VALUES - 1
        assert disk.open_count <= LIMIT
        assert opened.index_bytes <= 1000


def test_what_is_used_stays_and_what_is_not_goes(disk: SimulatedDisk) -> None:
    opened = OpenSegments(files_max=FILES_MIN)
    names = [f"segment {number}" for number in range(FILES_MIN + 1)]
    for name in names[:-1]:
        opened.hold_file(name, disk.open(f"/data/{name}", create=True))
    assert opened.file_of(names[0]) is not None
    opened.hold_file(names[-1], disk.open(f"/data/{names[-1]}", create=True))
    assert [name for name in names if opened.file_of(name) is None] == [names[1]]


def test_indexes_are_counted_by_their_bytes() -> None:
    opened = OpenSegments(index_bytes_max=100)
    for number in range(10):
        index = Index()
        index.append(Interval(0, 0, 10, 0, number))
        opened.hold_index(number, index)
    assert opened.index_bytes <= 100
    assert opened.index_of(9) is not None
    assert opened.index_of(0) is None


def test_segments_that_take_appends_count_too(disk: SimulatedDisk) -> None:
    opened = OpenSegments(files_max=FILES_MIN + 4)
    for number in range(FILES_MIN + 4):
        opened.hold_file(number, disk.open(f"/data/{number}", create=True))
    for number in range(100, 110):
        opened.opened_active(number)
    assert opened.file_count == FILES_MIN + 10
    assert disk.open_count == FILES_MIN


def test_a_log_that_is_gone_holds_nothing(disk: SimulatedDisk, opened: OpenSegments, logs: dict[str, Log]) -> None:
    for log in logs.values():
        values(log)
        log.release()
    assert (opened.file_count, opened.index_bytes, disk.open_count) == (0, 0, 0)


def test_a_log_that_cannot_be_opened_holds_nothing(
    disk: SimulatedDisk, opened: OpenSegments, logs: dict[str, Log]
) -> None:
    for log in logs.values():
        log.release()
    disk.remove("/data/a/recovery")
    disk.faults.refuse_opens(f"/data/a/{logs['/data/a'].segments[5].base_offset:020d}")
    with pytest.raises(OutOfResources):
        open_log(disk, "/data/a", SMALL, None, START_MS, opened)
    assert (opened.file_count, disk.open_count) == (0, 0)


def test_a_sealed_segment_that_is_cut_takes_appends_again(logs: dict[str, Log]) -> None:
    log = logs["/data/a"]
    values(log)
    log.truncate(50)
    pending = log.begin_flush()
    for syncable in (*pending.files, *pending.directories):
        syncable.sync()
    log.flushed(pending)
    batch = encode([Record(0, START_MS, None, b"after")])
    for _ in range(20):
        log.append(batch, check(batch), 0, START_MS)
    for directory in ("/data/b", "/data/c"):
        values(logs[directory])
    assert values(log) == [*expected("/data/a")[:50], *["after"] * 20]


@pytest.fixture
def restless() -> Iterator[None]:
    """Make the interpreter switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def real_logs(tmp_path: Path) -> Iterator[dict[str, Log]]:
    opened = OpenSegments(files_max=0, index_bytes_max=0)
    logs = {path: filled(RealDisk(), path, opened) for path in [f"{tmp_path}/{name}" for name in "abc"]}
    yield logs
    for log in logs.values():
        log.release()


@pytest.mark.usefixtures("restless")
def test_threads_make_room_while_others_read(real_logs: dict[str, Log]) -> None:
    with ThreadPoolExecutor(6) as threads:
        reads = [(directory, threads.submit(values, log)) for directory, log in real_logs.items() for _ in range(6)]
        assert all(read.result() == expected(directory) for directory, read in reads)


class EmptiedMeanwhile(OrderedDict[Any, Any]):
    """A cache that other threads empty after this one has counted its entries."""

    def popitem(self, last: bool = True) -> Any:
        self.clear()
        return super().popitem(last)


def test_threads_that_make_room_together_leave_nothing_to_evict() -> None:
    opened = OpenSegments(index_bytes_max=0)
    opened._indexes = EmptiedMeanwhile({number: (Index(), 1) for number in range(2)})
    opened._files = EmptiedMeanwhile(dict.fromkeys(range(FILES_MAX + 1)))
    opened._aborted = EmptiedMeanwhile(dict.fromkeys(range(2), b""))
    opened.hold_index("a", Index())
    opened.hold_aborted("a", bytes(ABORTED_BYTES_MAX + 1))
    opened.opened_active("a")
    assert opened.file_count == 1
