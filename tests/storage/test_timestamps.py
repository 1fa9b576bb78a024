"""Which offset stands for a point in time, whatever the order of the clocks that wrote them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_fixture import START_MS, LogFixture

from cordwood.storage.timestamps import Found, first_at_or_after, latest_by_time


def timed(*times: int) -> LogFixture:
    """A log whose record at offset n was made at START_MS + times[n]."""
    log = LogFixture()
    for place, time in enumerate(times):
        log.append(f"value {place}", timestamp=START_MS + time)
    return log


def first(log: LogFixture, time: int, end: int | None = None) -> int | None:
    found = first_at_or_after(log.log, START_MS + time, log.end if end is None else end)
    return None if found is None else found.offset


def latest(log: LogFixture, end: int | None = None) -> int | None:
    found = latest_by_time(log.log, log.end if end is None else end)
    return None if found is None else found.offset


def test_the_first_record_that_is_not_earlier() -> None:
    log = timed(*range(0, 1000, 10))
    assert [first(log, time) for time in (-5, 0, 1, 10, 985, 990, 991)] == [0, 0, 1, 1, 99, 99, None]
    assert first_at_or_after(log.log, START_MS + 11, 100) == Found(2, START_MS + 20, 0)


def test_an_empty_log_has_no_times() -> None:
    assert (first(timed(), 0), latest(timed())) == (None, None)


def test_what_is_not_committed_is_not_found() -> None:
    log = timed(0, 10, 20, 30)
    assert first(log, 15, end=2) is None
    assert (latest(log, end=3), latest(log, end=0)) == (2, None)


def test_deleted_records_are_not_found() -> None:
    log = timed(*range(0, 1000, 10)).flush().delete_records(50)
    assert first(log, 0) == 50
    log.delete_records(100)
    assert (first(log, 0), latest(log)) == (None, None)


def test_the_latest_is_the_first_of_equals() -> None:
    assert latest(timed(5, 9, 7, 9, 8)) == 1


def test_records_within_a_batch_are_told_apart() -> None:
    log = LogFixture().append("a", timestamp=START_MS)
    log.now = START_MS + 5
    log.append_batch("b", "c")
    assert (first(log, 1), first(log, 5), latest(log)) == (1, 1, 1)


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
