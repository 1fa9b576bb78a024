"""Idempotent producers after a refused batch: later batches are refused, but not as out of order (rule 9)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from replica_fixture import ME, NOW_MS, ReplicaFixture

from cordwood.replication.assignment import Assignment
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.refused_sequences import PRODUCERS_MAX, REMEMBERED_S, RefusedSequences
from cordwood.storage.batch import BatchHeader, check, headers, stamp
from cordwood.storage.errors import DiskFull, OutOfOrderSequence
from cordwood.storage.producers import Producers
from cordwood.storage.records import Record, encode

OTHER = 2

Change = Callable[[ReplicaFixture], None]


def batch(sequence: int, *, producer: int = 7, epoch: int = 0, size: int = 1) -> bytes:
    record = Record(0, NOW_MS, b"k", b"x" * size)
    return encode([record], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def header(sequence: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return check(batch(sequence, producer=producer, epoch=epoch))


def assign(partition: Partition, *, leader: int, min_isr: int) -> None:
    replicas = (ME, OTHER)
    epoch = partition.leader_epoch + 1
    partition.assigned(Assignment(leader, epoch, epoch, replicas, frozenset({leader}), min_isr))


def too_few_replicas(broker: ReplicaFixture) -> None:
    assign(broker.partition(), leader=ME, min_isr=2)


def enough_replicas(broker: ReplicaFixture) -> None:
    assign(broker.partition(), leader=ME, min_isr=1)


def another_leads(broker: ReplicaFixture) -> None:
    assign(broker.partition(), leader=OTHER, min_isr=1)


def a_full_disk(broker: ReplicaFixture) -> None:
    broker.disk.capacity_bytes = 0


def room_again(broker: ReplicaFixture) -> None:
    broker.disk.capacity_bytes = 1 << 40


def tell(scenario: Callable[[ReplicaFixture], Awaitable[None]]) -> None:
    async def reported() -> None:
        await scenario(ReplicaFixture())

    asyncio.run(reported())


@pytest.mark.parametrize(
    ("trouble", "end_of_it", "refusal"),
    [
        (too_few_replicas, enough_replicas, PartitionRefused),
        (another_leads, enough_replicas, PartitionRefused),
        (a_full_disk, room_again, DiskFull),
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["a known producer", "its first batches"])
def test_later_batches_wait_for_the_one_that_was_refused(
    trouble: Change, end_of_it: Change, refusal: type[Exception], is_known: bool
) -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        partition = broker.partition()
        if is_known:
            partition.append(batch(0), NOW_MS)
        first = partition.log.log_end
        trouble(broker)
        with pytest.raises(refusal):
            partition.append(batch(first, size=200 << 10), NOW_MS)
        end_of_it(broker)
        for later in (first + 1, first + 2):
            with pytest.raises(PartitionRefused) as refused:
                partition.append(batch(later), NOW_MS)
            assert refused.value.reason is Refusal.FOLLOWS_REFUSED
        for again in range(first, first + 3):
            assert partition.append(batch(again), NOW_MS).base_offset == again

    tell(scenario)


def test_what_another_leader_took_meanwhile_is_no_gap() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        partition = broker.partition()
        another_leads(broker)
        with pytest.raises(PartitionRefused):
            partition.append(batch(0), NOW_MS)
        taken = batch(0)
        partition.log.append_stamped(taken, [check(taken)], NOW_MS)
        enough_replicas(broker)
        assert partition.append(batch(1), NOW_MS).base_offset == 1

    tell(scenario)


@pytest.mark.parametrize("is_refused_again", [False, True], ids=["it came later", "a repeat is refused too"])
def test_repeats_of_what_another_leader_took_meanwhile_are_known(is_refused_again: bool) -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        partition = broker.partition()
        another_leads(broker)
        with pytest.raises(PartitionRefused):
            partition.append(batch(0), NOW_MS)
        for sequence in range(3):
            taken = batch(sequence)
            stamped = stamp(check(taken), sequence, partition.leader_epoch) + taken[16:]
            partition.log.append_stamped(stamped, headers(stamped), NOW_MS)
        if is_refused_again:
            with pytest.raises(PartitionRefused):
                partition.append(batch(0), NOW_MS)
        enough_replicas(broker)
        for sequence in (1, 2):
            again = partition.append(batch(sequence), NOW_MS)
            assert (again.base_offset, again.is_duplicate) == (sequence, True)
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch(4), NOW_MS)

    tell(scenario)


def test_a_gap_without_a_refused_batch_is_reported() -> None:
    async def scenario(broker: ReplicaFixture) -> None:
        partition = broker.partition()
        partition.append(batch(0), NOW_MS)
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch(2), NOW_MS)

    tell(scenario)


class EmptyLog:
    """A log without producers."""

    def __init__(self) -> None:
        self.producers = Producers()


def test_a_batch_that_does_not_come_again_is_waited_for_only_so_long() -> None:
    now = 100.0
    refused_sequences = RefusedSequences(lambda: now, EmptyLog())
    refused_sequences.opened(header(5))
    now += REMEMBERED_S
    assert refused_sequences.is_before(header(6))
    refused_sequences.opened(header(6))
    now += 0.001
    assert not refused_sequences.is_before(header(7)), "later ones do not keep it open"


def test_sequence_numbers_wrap_around() -> None:
    refused_sequences = RefusedSequences(lambda: 0.0, EmptyLog())
    refused_sequences.opened(header(2**31 - 1))
    assert refused_sequences.is_before(header(0))
    assert not refused_sequences.is_before(header(2**31 - 2))


def test_other_producers_and_later_epochs_know_nothing_of_it() -> None:
    refused_sequences = RefusedSequences(lambda: 0.0, EmptyLog())
    refused_sequences.opened(header(5))
    assert not refused_sequences.is_before(header(6, producer=8))
    assert not refused_sequences.is_before(header(6, epoch=1))


def test_only_so_many_producers_are_remembered() -> None:
    refused_sequences = RefusedSequences(lambda: 0.0, EmptyLog())
    for producer in range(PRODUCERS_MAX + 5):
        refused_sequences.opened(header(0, producer=producer))
    assert len(refused_sequences.by_producer) == PRODUCERS_MAX
    assert refused_sequences.is_before(header(1, producer=PRODUCERS_MAX + 4))
