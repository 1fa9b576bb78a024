"""Fetches of an offset range: retries, elections, lost connections, gone offsets and damaged batches."""

import time
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode
from scripted_broker import ScriptedBroker

from cordwood.columnar.batches import FetchedBatches
from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.errors import CorruptRecords, OffsetsGone
from cordwood.columnar.ranges import Isolation, OffsetRange
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.fetch import fetch
from cordwood.spark.errors import RequestRefused, Unavailable
from cordwood.spark.range_reader import read_range
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode


def batch(base: int, *values: str, **fields: int) -> bytes:
    records = [Record(base + at, 0, None, value.encode()) for at, value in enumerate(values)]
    return encode(records, base_offset=base, **fields)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """Run a broker with six records in three batches, which answers with one batch at a time."""
    with ScriptedBroker(batch(0, "a", "b"), batch(2, "c"), batch(3, "d", "e", "f")) as running:
        yield running


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange(*_place(), start, end)


def _place() -> tuple[str, int]:
    return ScriptedBroker.place.topic, ScriptedBroker.place.partition


def values(broker: ScriptedBroker, start: int = 0, end: int = 6, **settings: int) -> str:
    tables = read_range(broker.settings(**settings), wanted(start, end), Columns((Column.VALUE,)))
    return "".join(value.decode() for table in tables for value in table.column(0).to_pylist())


def answers(broker: ScriptedBroker, start: int = 0, end: int = 6) -> Iterator[FetchedBatches]:
    return fetch(ClusterReader(broker.settings()), wanted(start, end))


def test_a_range_is_read_to_its_end_and_not_beyond(broker: ScriptedBroker) -> None:
    assert values(broker) == "abcdef"
    assert values(broker, 1, 5) == "bcde"
    assert values(broker, 4, 5) == "e"
    assert values(broker, 3, 3) == ""


def test_the_next_request_is_on_its_way_while_an_answer_is_looked_at(broker: ScriptedBroker) -> None:
    reading = answers(broker)
    assert next(reading).end == 2
    broker.wait_for_fetches(2)
    assert broker.fetched_offsets == [0, 2]
    assert [fetched.end for fetched in reading] == [3, 6]
    assert broker.fetched_offsets == [0, 2, 3], "and nothing is asked for after the end"


def test_a_reader_that_stops_early_leaves_nothing_for_the_next(broker: ScriptedBroker) -> None:
    reading = answers(broker)
    next(reading)
    reading.close()
    assert values(broker) == "abcdef"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.kafka_storage_error,
    ],
    ids=lambda code: code.name,
)
def test_what_may_pass_is_tried_again(broker: ScriptedBroker, code: ErrorCode) -> None:
    broker.fails_with(code, code)
    assert values(broker) == "abcdef"
    assert broker.fetched_offsets == [0, 0, 0, 2, 3]


def test_a_connection_that_breaks_in_the_middle_loses_and_repeats_nothing(broker: ScriptedBroker) -> None:
    reading = answers(broker)
    ends = [next(reading).end]
    broker.wait_for_fetches(2)
    broker.breaks_off()
    ends += [fetched.end for fetched in reading]
    assert ends == [2, 3, 6]
    assert broker.fetched_offsets == [0, 2, 3, 3]


def test_an_election_in_the_middle_is_followed(broker: ScriptedBroker) -> None:
    reading = answers(broker)
    next(reading)
    broker.wait_for_fetches(2)
    broker.epoch += 1
    assert [fetched.end for fetched in reading] == [3, 6]
    assert broker.fetches[-1].topics[0].partitions[0].current_leader_epoch == broker.epoch


def read_with_a_rack(broker: ScriptedBroker) -> list[int]:
    return [fetched.end for fetched in fetch(ClusterReader(broker.settings(rack="east")), wanted(0, 6))]


@pytest.fixture
def near(broker: ScriptedBroker) -> Iterator[ScriptedBroker]:
    """Run a follower with the same records, which the broker proposes to clients with a rack."""
    with ScriptedBroker(*broker.batches) as follower:
        broker.near = follower
        yield follower


def test_a_reader_with_a_rack_reads_from_the_replica_that_the_leader_proposes(
    broker: ScriptedBroker, near: ScriptedBroker
) -> None:
    assert read_with_a_rack(broker) == [2, 3, 6]
    assert (broker.fetched_offsets, near.fetched_offsets) == ([0], [0, 2, 3])


@pytest.mark.parametrize("code", [ErrorCode.offset_out_of_range, ErrorCode.not_leader_or_follower])
def test_a_reader_goes_on_at_the_leader_if_the_nearer_replica_refuses(
    broker: ScriptedBroker, near: ScriptedBroker, code: ErrorCode
) -> None:
    near.mishaps += [lambda _: ErrorCode.none, lambda _: code]
    assert read_with_a_rack(broker) == [2, 3, 6]
    assert (broker.fetched_offsets, near.fetched_offsets) == ([0, 2, 3], [0, 2])


def test_a_reader_goes_on_at_the_leader_if_the_nearer_replica_is_gone(
    broker: ScriptedBroker, near: ScriptedBroker
) -> None:
    near.breaks_off()
    assert read_with_a_rack(broker) == [2, 3, 6]
    assert broker.fetched_offsets == [0, 0, 2, 3]


def test_a_reader_without_a_rack_stays_with_the_leader(broker: ScriptedBroker, near: ScriptedBroker) -> None:
    assert values(broker) == "abcdef"
    assert near.fetched_offsets == []


def test_what_never_passes_ends_with_a_sentence_that_says_why(broker: ScriptedBroker) -> None:
    broker.fails_with(*[ErrorCode.not_leader_or_follower] * 100)
    with pytest.raises(Unavailable, match=r"read flights-0 from 0 to 6 within 2 s: .*not_leader"):
        values(broker, retry_timeout_ms=2000)
    assert broker.mishaps, "it asked until all of them had passed"


def test_a_silent_broker_is_given_up(broker: ScriptedBroker) -> None:
    broker.mishaps += [lambda _: time.sleep(1) or ErrorCode.none] * 3  # type: ignore[func-returns-value]
    with pytest.raises(Unavailable, match=r"did not answer for 0\.1 s"):
        values(broker, request_timeout_ms=100, retry_timeout_ms=200)


def test_what_will_not_pass_is_said_at_once(broker: ScriptedBroker) -> None:
    broker.fails_with(ErrorCode.topic_authorization_failed)
    with pytest.raises(RequestRefused, match=r"flights-0: topic_authorization_failed"):
        values(broker)
    assert broker.fetched_offsets == [0]


def test_records_that_retention_deleted_are_reported_with_the_next_offset(broker: ScriptedBroker) -> None:
    broker.batches.pop(0)
    broker.log_start = 2
    with pytest.raises(OffsetsGone, match="begins at offset 2") as reported:
        values(broker, 1, 5)
    assert reported.value.gone == wanted(1, 2)
    with pytest.raises(OffsetsGone) as reported:
        values(broker, 0, 1)
    assert reported.value.gone == wanted(0, 1)


def test_a_log_that_ends_before_what_was_planned_is_another_log(broker: ScriptedBroker) -> None:
    with pytest.raises(OffsetsGone, match=r"ends at offset 6: .* created again") as reported:
        values(broker, 8, 10)
    assert reported.value.gone == wanted(8, 10)


def test_a_log_that_stays_shorter_than_planned_is_not_waited_for_without_end(broker: ScriptedBroker) -> None:
    with pytest.raises(Unavailable, match=r"no records were returned from offset 6 on, .* up to 6"):
        values(broker, 4, 10, retry_timeout_ms=300)


def test_offsets_that_compaction_took_do_not_stall(broker: ScriptedBroker) -> None:
    broker.batches[1:2] = []
    assert values(broker, 0, 6) == "abdef"
    assert values(broker, 2, 3) == ""


def test_aborted_records_are_hidden_from_those_who_want_the_committed(broker: ScriptedBroker) -> None:
    broker.batches[1] = batch(2, "x", producer_id=9, producer_epoch=0, attributes=TRANSACTIONAL)
    broker.aborted = [(9, 2)]
    assert values(broker) == "abdef"
    assert broker.fetches[-1].isolation_level == Isolation.READ_COMMITTED
    assert values(broker, isolation=Isolation.READ_UNCOMMITTED) == "abxdef"
    assert broker.fetches[-1].isolation_level == Isolation.READ_UNCOMMITTED


def test_damage_is_reported_with_its_place(broker: ScriptedBroker) -> None:
    broker.batches[1] = broker.batches[1][:-1] + b"!"
    with pytest.raises(CorruptRecords, match=r"flights-0 .* offset 2: CRC-32C"):
        values(broker)
