"""Share partitions with as many runs as they may have, and requests with thousands of items: no step is long.

Counted in lines that run, not by the clock. Steps of requests: `tests/cluster/kafka/test_loop_budget.py`.
"""

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v2 import request as fetch_requests
from line_counter import lines
from share_fixture import ShareFixture, with_members

from cordwood.cluster.share.lock_timers import SLICE_S, LockTimers
from cordwood.cluster.share.share_partition import (
    IN_FLIGHT_MAX,
    RUNS_AT_ONCE,
    LogBatch,
    SharePartition,
    ShareRules,
)
from cordwood.cluster.share.states import AcknowledgementBatch
from cordwood.storage.records import Record, encode

ACCEPT, RELEASE, RENEW = 1, 2, 4
LOCK_S = 30.0
LINES_MAX = 40 * RUNS_AT_ONCE
SCAN_LINES = 4
"""Lines for each run where all of them are looked at."""
ITEMS = 12_000


def of_single_records(count: int = IN_FLIGHT_MAX) -> SharePartition:
    """Return a share partition with as many runs of one record each, all acquired by the member `a`."""
    state = SharePartition(0, rules=ShareRules(5, LOCK_S, count))
    for start in range(0, count, RUNS_AT_ONCE):
        acquire(state, start)
    assert len(state.runs) == count
    return state


def acquire(state: SharePartition, start: int, member: str = "a") -> int:
    batches = [LogBatch(one, one + 1) for one in range(start, start + RUNS_AT_ONCE)]
    acquired = state.acquire(member, start, batches, RUNS_AT_ONCE, 0.0, batch_size=1)
    return sum(end - begin for begin, end, _ in acquired)


def written(state: SharePartition) -> int:
    """Write all that waits to be written, each time in short steps. Return the number of writes."""
    writes = 0
    while state.must_write:
        assert lines(state.begin_write) < LINES_MAX
        assert lines(state.committed) < LINES_MAX
        writes += 1
    return writes


def test_locks_that_end_together_are_released_in_parts() -> None:
    state = of_single_records()
    scan = SCAN_LINES * IN_FLIGHT_MAX
    released = 0
    while (next_at := state.next_deadline()) is not None and next_at <= LOCK_S:
        before = sum(run.target is not None for run in state.runs)
        assert lines(partial(state.expire, LOCK_S)) < LINES_MAX + scan
        released += sum(run.target is not None for run in state.runs) - before
    assert released == IN_FLIGHT_MAX
    assert written(state) == IN_FLIGHT_MAX // RUNS_AT_ONCE
    assert acquire(state, 0, "b") == RUNS_AT_ONCE, "they are delivered again"


def test_a_session_that_ends_releases_its_records_in_parts() -> None:
    state = of_single_records()
    parts = 0
    while state.release_member("a"):
        parts += 1
    assert parts == IN_FLIGHT_MAX // RUNS_AT_ONCE
    assert not state.held_by("a")


def test_acknowledgements_look_only_at_the_records_that_they_are_for() -> None:
    state = of_single_records()
    last = IN_FLIGHT_MAX - 250
    acks = [AcknowledgementBatch(one, one + 1, (ACCEPT,)) for one in range(last, IN_FLIGHT_MAX)]
    assert lines(partial(state.acknowledge, "a", acks, 0.0)) < LINES_MAX
    assert written(state) == 1


@pytest.mark.parametrize("types", [(RENEW,), (ACCEPT, RELEASE) * (IN_FLIGHT_MAX // 2)], ids=["one type", "each"])
def test_one_acknowledgement_of_very_many_records_is_divided(types: tuple[int, ...]) -> None:
    state = of_single_records()
    parts = state.in_parts([AcknowledgementBatch(0, IN_FLIGHT_MAX, types)], 250)
    known = []
    for part in parts:
        assert lines(partial(state.check_acknowledgements, "a", part)) < LINES_MAX
        assert lines(partial(state.acknowledge, "a", part, 1.0)) < LINES_MAX
        known += part
    assert (known[0].start, known[-1].end, len(known)) == (0, IN_FLIGHT_MAX, IN_FLIGHT_MAX // 250)
    assert all(one.end == other.start for one, other in pairwise(known))


def test_a_batch_of_the_log_larger_than_the_limit_is_acquired_in_parts() -> None:
    state = SharePartition(0)
    log = [LogBatch(0, 3 * IN_FLIGHT_MAX)]
    for start in range(0, 3 * IN_FLIGHT_MAX, IN_FLIGHT_MAX):
        assert state.next_fetch_offset() == start
        acquired = state.acquire("a", start, log, 500, 0.0)
        assert [(one.start, one.end) for one in acquired] == [(start, start + IN_FLIGHT_MAX)]
        assert state.next_fetch_offset() is None
        state.acknowledge("a", [AcknowledgementBatch(start, start + IN_FLIGHT_MAX, (ACCEPT,))], 0.0)
        assert written(state) == 1


def test_a_fetch_acquires_a_limited_number_of_ranges() -> None:
    state = of_single_records()
    state.acknowledge("a", [AcknowledgementBatch(0, IN_FLIGHT_MAX, (ACCEPT, RELEASE) * (IN_FLIGHT_MAX // 2))], 0.0)
    written(state)
    acquired = state.acquire("b", 1, [LogBatch(0, IN_FLIGHT_MAX)], 1 << 20, 0.0)
    assert len(acquired) == RUNS_AT_ONCE
    assert state.next_fetch_offset() == acquired[-1].end + 1, "the next fetch goes on there"


class Locked:
    """A share partition whose locks take 3 ms to be handled, until there are none."""

    def __init__(self, clock: "SlowClock", parts: int) -> None:
        self.timer_at: float | None = None
        self.clock, self.parts = clock, parts


class SlowClock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_locks_are_handled_in_slices_by_a_clock_that_goes_on_during_an_iteration() -> None:
    async def story() -> None:
        loop, clock, handled = asyncio.get_running_loop(), SlowClock(), list[int]()

        def on_end(locked: Locked, now: float) -> float | None:
            clock.now += 0.75 * SLICE_S
            locked.parts -= 1
            handled[-1] += 1
            return now if locked.parts else None

        timers: LockTimers[Locked] = LockTimers(loop, on_end, clock)
        for _ in range(10):
            timers.set(Locked(clock, 2), loop.time())
        while sum(handled) < 20:
            handled.append(0)
            await asyncio.sleep(0)
        assert max(handled) == 2, "a slice ends with the call that uses it up"

    asyncio.run(story())


@pytest.mark.parametrize("is_one_topic", [False, True], ids=["topics", "partitions"])
def test_a_share_fetch_of_thousands_of_partitions_is_answered(is_one_topic: bool) -> None:
    def partitions(*indexes: int) -> tuple[Any, ...]:
        none = dict[str, Any](acknowledgement_batches=())
        return tuple(fetch_requests.FetchPartition(partition_index=index, **none) for index in indexes)

    if is_one_topic:
        topics: tuple[Any, ...] = (
            fetch_requests.FetchTopic(topic_id=UUID(int=1), partitions=partitions(*range(ITEMS))),
        )
    else:
        topics = tuple(
            fetch_requests.FetchTopic(topic_id=UUID(int=number + 1), partitions=partitions(0))
            for number in range(ITEMS)
        )

    async def story(group: ShareFixture) -> None:
        worker = group.member()
        answer = await worker.ask(topics=topics)
        rows = [row for topic in answer.responses for row in topic.partitions]
        assert len(rows) == ITEMS
        assert {row.error_code for row in rows} == {ErrorCode.unknown_topic_id}
        forgotten = tuple(
            fetch_requests.ForgottenTopic(
                topic_id=topic.topic_id, partitions=tuple(row.partition_index for row in topic.partitions)
            )
            for topic in topics
        )
        answer = await worker.ask(partitions=(), forgotten_topics_data=forgotten)
        assert answer.responses == ()

    with_members(story)


def test_tens_of_thousands_of_acknowledge_types_are_answered() -> None:
    async def story(group: ShareFixture) -> None:
        many = IN_FLIGHT_MAX
        await group.append(encode([Record(0, 1_700_000_000_000, None, b"v")] * many))
        worker = group.member()
        assert (await worker.fetch(max_bytes=16 << 20)).acquired == [(0, many - 1, 1)]
        code = await worker.acknowledge(0, 4 * many - 1, *((ACCEPT, RELEASE) * (2 * many)))
        assert code is ErrorCode.invalid_request, "more than was acquired"
        code = await worker.acknowledge(0, many - 1, *((ACCEPT, RELEASE) * (many // 2)))
        assert code is ErrorCode.none
        fetched = await worker.fetch(partitions=(), max_bytes=16 << 20, wait_s=5)
        assert (len(fetched.acquired), fetched.acquired[0]) == (RUNS_AT_ONCE, (1, 1, 2))

    with_members(story)
