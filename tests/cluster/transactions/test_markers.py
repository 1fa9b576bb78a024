"""Markers that are still to be written: one queue for each broker, and answers that come late, in part, or never."""

from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.transactions.markers import (
    IN_FLIGHT_MAX,
    NO_LEADER,
    PARTITIONS_PER_REQUEST_MAX,
    Batch,
    Decided,
    Marker,
    MarkerQueue,
)
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.storage.types import ProducerIdAndEpoch

TOPIC = UUID(int=1)


def partition(index: int) -> AddedPartition:
    return AddedPartition(TOPIC, "flights", index)


ONE, TWO, THREE = map(partition, (1, 2, 3))


class QueueFixture:
    """A queue whose partitions have the leaders of `leaders`, broker 1 by default."""

    def __init__(self) -> None:
        self.leaders: dict[AddedPartition, int | None] = {}
        self.queue = MarkerQueue(lambda one: self.leaders.get(one, 1))

    def decide(self, *partitions: AddedPartition, owner: object = None) -> Decided:
        marker = Marker(ProducerIdAndEpoch(7, 0), True, False, 3)
        decision = Decided(owner, marker, partitions, lambda: None)
        self.completed = self.queue.add(decision)
        return decision

    def take(self, broker: int = 1) -> Batch:
        batch = self.queue.take(broker)
        assert batch is not None
        return batch

    def answer(self, batch: Batch, *refused: AddedPartition, code: ErrorCode = ErrorCode.none) -> list[Decided]:
        codes = [
            {one: ErrorCode.not_leader_or_follower if one in refused else code for one in row.partitions}
            for row in batch.rows
        ]
        return self.queue.answered(batch, codes)


def sent(batch: Batch) -> list[list[int]]:
    return [[one.partition for one in row.partitions] for row in batch.rows]


def test_the_markers_of_one_broker_share_a_request() -> None:
    fixture = QueueFixture()
    fixture.leaders = {TWO: 2}
    first, second = fixture.decide(ONE, TWO), fixture.decide(ONE)
    assert sorted(fixture.queue.ready()) == [1, 2]
    one, two = fixture.take(1), fixture.take(2)
    assert (sent(one), sent(two)) == ([[1], [1]], [[2]])
    assert fixture.answer(one) == [second]
    assert fixture.answer(two) == [first]
    assert len(fixture.queue) == 0


def test_a_decision_without_partitions_is_complete_at_once() -> None:
    fixture = QueueFixture()
    decision = fixture.decide()
    assert fixture.completed == [decision]
    assert fixture.queue.ready() == []


def test_refused_markers_are_parked_and_sent_again() -> None:
    fixture = QueueFixture()
    decision = fixture.decide(ONE, TWO)
    assert fixture.answer(fixture.take(), TWO) == []
    assert fixture.queue.has_parked
    assert fixture.queue.ready() == []
    assert fixture.queue.unpark() == []
    assert fixture.answer(fixture.take()) == [decision]


def test_no_answer_refuses_all() -> None:
    fixture = QueueFixture()
    decision = fixture.decide(ONE, TWO)
    assert fixture.queue.answered(fixture.take(), None) == []
    fixture.queue.unpark()
    assert fixture.answer(fixture.take()) == [decision]


def test_a_partition_without_a_code_is_not_acknowledged() -> None:
    fixture = QueueFixture()
    fixture.decide(ONE, TWO)
    batch = fixture.take()
    assert fixture.queue.answered(batch, [{ONE: ErrorCode.none}]) == []
    fixture.queue.unpark()
    assert sent(fixture.take()) == [[2]]


def test_a_newer_epoch_in_the_partition_ends_the_transaction_there() -> None:
    fixture = QueueFixture()
    decision = fixture.decide(ONE)
    assert fixture.answer(fixture.take(), code=ErrorCode.invalid_producer_epoch) == [decision]


def test_a_fenced_coordinator_keeps_its_markers() -> None:
    fixture = QueueFixture()
    fixture.decide(ONE)
    assert fixture.answer(fixture.take(), code=ErrorCode.transaction_coordinator_fenced) == []
    assert fixture.queue.has_parked


def test_a_few_requests_at_a_time_go_to_one_broker() -> None:
    fixture = QueueFixture()
    for _ in range(IN_FLIGHT_MAX):
        fixture.decide(ONE)
        assert fixture.queue.ready() == [1]
        fixture.take()
    fixture.decide(ONE)
    assert fixture.queue.ready() == []


def test_a_large_transaction_is_written_in_parts() -> None:
    fixture = QueueFixture()
    count = 2 * PARTITIONS_PER_REQUEST_MAX + 1
    decision = fixture.decide(*map(partition, range(count)))
    sizes = []
    completed: list[Decided] = []
    while fixture.queue.ready():
        batch = fixture.take()
        sizes.append(sum(map(len, sent(batch))))
        completed += fixture.answer(batch)
    assert sizes == [PARTITIONS_PER_REQUEST_MAX, PARTITIONS_PER_REQUEST_MAX, 1]
    assert completed == [decision]


def test_what_waits_for_a_broker_moves_with_its_partition() -> None:
    fixture = QueueFixture()
    fixture.decide(ONE, TWO)
    fixture.leaders = {ONE: 2}
    assert fixture.queue.leaders_changed() == []
    assert (sent(fixture.take(1)), sent(fixture.take(2))) == ([[2]], [[1]])


def test_what_is_in_flight_is_sent_to_the_new_leader_at_once() -> None:
    fixture = QueueFixture()
    decision = fixture.decide(ONE, TWO)
    before = fixture.take(1)
    fixture.leaders = {ONE: 2}
    fixture.queue.leaders_changed()
    after = fixture.take(2)
    # The answer of the former leader may still come.
    assert fixture.answer(before) == []
    assert fixture.answer(after) == [decision]
    assert not fixture.queue.has_parked


def test_an_acknowledgement_of_the_former_leader_does_not_count_for_the_new_one() -> None:
    fixture = QueueFixture()
    decision = fixture.decide(ONE)
    before = fixture.take(1)
    fixture.leaders = {ONE: 2}
    fixture.queue.leaders_changed()
    after = fixture.take(2)
    # The producer's next transaction must not begin while the new leader may still get this marker.
    assert fixture.queue.answered(before, [{ONE: ErrorCode.none}]) == []
    assert fixture.answer(after) == [decision]


def test_a_marker_without_a_leader_waits() -> None:
    fixture = QueueFixture()
    fixture.leaders = {ONE: NO_LEADER}
    fixture.decide(ONE)
    assert fixture.queue.ready() == []
    fixture.queue.unpark()
    assert fixture.queue.has_parked
    fixture.leaders = {}
    fixture.queue.leaders_changed()
    assert sent(fixture.take()) == [[1]]


def test_a_deleted_topic_needs_no_marker() -> None:
    fixture = QueueFixture()
    unsent, in_flight, parked = fixture.decide(ONE), fixture.decide(TWO), fixture.decide(THREE)
    fixture.leaders = {THREE: NO_LEADER}
    fixture.queue.leaders_changed()
    batch = fixture.take()
    assert sent(batch) == [[1], [2]]
    fixture.decide(ONE)
    fixture.leaders = dict.fromkeys((ONE, TWO, THREE), None)
    completed = fixture.queue.leaders_changed()
    assert {unsent, in_flight, parked} < set(completed)
    assert len(completed) == 4
    assert fixture.answer(batch) == []


def test_what_is_cancelled_is_neither_sent_nor_completed() -> None:
    fixture = QueueFixture()
    mine, other = object(), object()
    fixture.decide(ONE, owner=mine)
    batch = fixture.take()
    fixture.decide(TWO, owner=mine)
    kept = fixture.decide(THREE, owner=other)
    fixture.queue.cancel(mine)
    assert fixture.answer(batch) == []
    assert not fixture.queue.has_parked
    batch = fixture.take()
    assert sent(batch) == [[3]]
    assert fixture.answer(batch) == [kept]
    assert len(fixture.queue) == 0
