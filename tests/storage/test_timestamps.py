"""Offsets by timestamp (ListOffsets), where the timestamps of the records are in any order."""

import struct
import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from log_fixture import START_MS, LogFixture
from raw_batches import bomb, raw_batch, zero_deltas

from cordwood.storage.batch import check
from cordwood.storage.config import LogConfig
from cordwood.storage.records import Record, encode
from cordwood.storage.steps import at_once
from cordwood.storage.timestamps import Found, first_at_or_after, latest_by_time


def timed(*times: int) -> LogFixture:
    """Return a log whose record at offset n has the timestamp START_MS + times[n]."""
    log = LogFixture()
    for place, time in enumerate(times):
        log.append(f"value {place}", timestamp=START_MS + time)
    return log


def first(log: LogFixture, time: int, end: int | None = None) -> int | None:
    found = at_once(first_at_or_after(log.log, START_MS + time, log.end if end is None else end))
    return None if found is None else found.offset


def latest(log: LogFixture, end: int | None = None) -> int | None:
    found = at_once(latest_by_time(log.log, log.end if end is None else end))
    return None if found is None else found.offset


def test_the_first_record_that_is_not_earlier() -> None:
    log = timed(*range(0, 1000, 10))
    assert [first(log, time) for time in (-5, 0, 1, 10, 985, 990, 991)] == [0, 0, 1, 1, 99, 99, None]
    assert at_once(first_at_or_after(log.log, START_MS + 11, 100)) == Found(2, START_MS + 20, 0)


@pytest.mark.parametrize("place", [0, 1, 2, 3, 7, 50, 98, 99])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_one_late_record_is_found_among_earlier_ones(place: int, is_sealed: bool) -> None:
    log = timed(*[500 if number == place else -number for number in range(100)])
    if is_sealed:
        log.flush().close().reopen()
    assert [first(log, time) for time in (0, 1, 500, 501)] == [0 if place else place, place, place, None]
    assert latest(log) == place


def test_an_empty_log_has_no_times() -> None:
    assert (first(timed(), 0), latest(timed())) == (None, None)


def test_what_is_not_committed_is_not_found() -> None:
    log = timed(0, 10, 20, 30)
    assert first(log, 15, end=2) is None
    assert (latest(log, end=3), latest(log, end=0)) == (2, None)


def test_of_a_batch_that_lies_only_partly_within_the_log_the_rest_is_not_found() -> None:
    log = LogFixture()
    for _ in range(3):
        log.append_batch("a", "b", "c")
    log.delete_records(1)
    assert [at_once(first_at_or_after(log.log, START_MS, end, looked)) for end, looked in ((1, 9), (2, 9), (9, 0))] == [
        None,
        Found(1, START_MS, 0),
        Found(1, START_MS, 0),
    ]
    batch = encode([Record(0, START_MS + time, None, b"") for time in (0, 10, 20)])
    log.log.append(batch, check(batch), 0, log.now)
    assert [first(log, 15, end) for end in (10, 11, 12)] == [None, None, 11]
    assert [latest(log, end) for end in (9, 10, 11, 12)] == [1, 1, 10, 11]


def test_deleted_records_are_not_found() -> None:
    log = timed(*range(0, 1000, 10)).flush().delete_records(50)
    assert first(log, 0) == 50
    log.delete_records(100)
    assert (first(log, 0), latest(log)) == (None, None)


def test_the_latest_is_the_first_of_equals() -> None:
    assert latest(timed(5, 9, 7, 9, 8)) == 1


def test_records_within_a_batch_are_distinguished() -> None:
    log = LogFixture().append("a", timestamp=START_MS)
    log.now = START_MS + 5
    log.append_batch("b", "c")
    assert (first(log, 1), first(log, 5), latest(log)) == (1, 1, 1)


@pytest.mark.parametrize("poison", [zero_deltas(1000), raw_batch(b"\xff" * 30, 7)])
def test_a_batch_that_cannot_be_decoded_is_answered_with_its_beginning(poison: bytes) -> None:
    log = timed(0, 10)
    log.log.append(poison, check(poison), 0, START_MS)
    log.append("behind", timestamp=START_MS + 20)
    assert (first(log, 5), first(log, 11)) == (1, log.end - 1)
    assert at_once(first_at_or_after(log.log, check(poison).max_timestamp, log.end)) is not None
    assert latest(log) == log.end - 1


def test_one_question_looks_at_so_many_records_and_no_more() -> None:
    log = LogFixture()
    liar = bytearray(encode([Record(0, START_MS, None, b"v")] * 1000))
    struct.pack_into(">q", liar, 35, START_MS + 60_000)
    struct.pack_into(">I", liar, 17, crc32c(bytes(liar[21:])))
    for _ in range(5):
        log.log.append(bytes(liar), check(bytes(liar)), 0, START_MS)
    log.append("true", timestamp=START_MS + 60_000)
    for looked_at_max, offset in ((5_001, 5000), (2_500, 2000), (0, 0)):
        found = at_once(first_at_or_after(log.log, START_MS + 60_000, log.end, looked_at_max))
        assert found == Found(offset, START_MS + 60_000, 0)
        latest_found = at_once(latest_by_time(log.log, log.end, looked_at_max))
        assert latest_found is not None
        assert latest_found.timestamp == START_MS + 60_000


def test_a_search_unpacks_no_more_than_it_needs() -> None:
    log = LogFixture(config=LogConfig(segment_bytes=1 << 30, batch_bytes_max=1 << 30))
    batch = bomb(300_000)
    log.log.append(batch, check(batch), 0, START_MS)
    tracemalloc.start()
    assert at_once(first_at_or_after(log.log, START_MS, log.end)) == Found(0, START_MS, 0)
    assert at_once(latest_by_time(log.log, log.end)) == Found(0, START_MS, 0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 << 20


@pytest.mark.parametrize("restart", ["close", "kill", "checkpoint"])
def test_times_are_found_after_a_restart(restart: str) -> None:
    log = timed(*range(0, 1000, 10)).flush()
    match restart:
        case "close":
            log.close()
        case "checkpoint":
            log.checkpoint()
    log.reopen()
    assert [first(log, time) for time in range(-9, 991, 10)] == list(range(100))
    assert latest(log) == 99


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(-1, 21), st.integers(0, 60), st.integers(0, 60))
def test_time_is_looked_up_as_in_a_list(times: list[int], time: int, start: int, end: int) -> None:
    log = timed(*times)
    start, end = min(start, len(times)), min(end, len(times))
    log.delete_records(start)
    readable = range(start, end)
    assert first(log, time, end) == next((offset for offset in readable if times[offset] >= time), None)
    assert latest(log, end) == max(readable, key=lambda offset: (times[offset], -offset), default=None)
