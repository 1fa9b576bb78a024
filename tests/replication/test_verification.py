"""Verification of transactions on a leader: guards, and batches that come before or after the coordinator's answer."""

import asyncio

import pytest
from handlers_fixture import HandlersStory, tell
from peer_fixture import FOLLOWER
from replica_fixture import ME, NOW_MS
from transactions import PRODUCER, decide, transactional, write

from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.verification import PRODUCERS_MAX, VerificationGuard, Verifications
from cordwood.storage.batch import BatchHeader, check
from cordwood.storage.errors import InvalidTransactionState, OutOfOrderSequence, StaleProducerEpoch
from cordwood.storage.producers import Producers
from cordwood.storage.types import ProducerIdAndEpoch


def header(sequence: int = 0, *, epoch: int = 0, producer: int = PRODUCER) -> BatchHeader:
    return check(transactional("a", producer=producer, epoch=epoch, sequence=sequence))


@pytest.fixture
def verifications() -> Verifications:
    return Verifications(Producers())


def test_a_batch_without_a_guard_is_refused(verifications: Verifications) -> None:
    assert verifications.is_needed(header())
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(), None)
    guard = verifications.begin(header(), is_v2=False)
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(), None)
    verifications.check(header(), guard)


def test_the_batches_of_a_producer_wait_for_the_same_answer(verifications: Verifications) -> None:
    first = verifications.begin(header(0), is_v2=False)
    assert verifications.begin(header(1), is_v2=False) is first
    assert verifications.begin(header(producer=8), is_v2=False) is not first


def test_a_guard_is_of_one_use(verifications: Verifications) -> None:
    guard = verifications.begin(header(), is_v2=False)
    verifications.appended(PRODUCER)
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(), guard)


def test_an_old_answer_does_not_validate_a_newer_transaction(verifications: Verifications) -> None:
    old = verifications.begin(header(), is_v2=False)
    verifications.ended(ProducerIdAndEpoch(PRODUCER, 0))
    new = verifications.begin(header(), is_v2=False)
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(), old)
    verifications.check(header(), new)


def test_a_new_epoch_has_a_new_guard(verifications: Verifications) -> None:
    old = verifications.begin(header(), is_v2=False)
    new = verifications.begin(header(epoch=1), is_v2=False)
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(), old)
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(epoch=1), old)
    with pytest.raises(StaleProducerEpoch):
        verifications.begin(header(), is_v2=False)
    verifications.check(header(epoch=1), new)


def test_in_the_second_protocol_the_marker_of_the_transaction_before_leaves_the_guard(
    verifications: Verifications,
) -> None:
    guard = verifications.begin(header(epoch=1), is_v2=True)
    verifications.ended(ProducerIdAndEpoch(PRODUCER, 1))
    verifications.check(header(epoch=1), guard)
    verifications.ended(ProducerIdAndEpoch(PRODUCER, 2))
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(epoch=1), guard)


def test_later_sequences_wait_for_the_lowest_one(verifications: Verifications) -> None:
    guard = verifications.begin(header(3), is_v2=False)
    verifications.begin(header(1), is_v2=False)
    verifications.begin(header(2), is_v2=False)
    with pytest.raises(PartitionRefused) as refused:
        verifications.check(header(2), guard)
    assert refused.value.reason is Refusal.FOLLOWS_REFUSED
    verifications.check(header(1), guard)


def test_in_the_second_protocol_an_unknown_producer_begins_at_sequence_0(verifications: Verifications) -> None:
    guard = verifications.begin(header(2), is_v2=True)
    with pytest.raises(OutOfOrderSequence):
        verifications.check(header(2), guard)
    old = verifications.begin(header(2, producer=8), is_v2=False)
    verifications.check(header(2, producer=8), old)


def test_so_many_guards_are_kept(verifications: Verifications) -> None:
    first = verifications.begin(header(producer=0), is_v2=False)
    sample = header()
    for producer in range(1, PRODUCERS_MAX):
        verifications.begin(sample._replace(producer_id=producer), is_v2=False)
    verifications.check(header(producer=0), first)
    last = verifications.begin(header(producer=PRODUCERS_MAX), is_v2=False)
    # Its batch has to be sent and verified again: the transaction goes on.
    with pytest.raises(PartitionRefused):
        verifications.check(header(producer=0), first)
    verifications.check(header(producer=0), verifications.begin(header(producer=0), is_v2=False))
    verifications.check(header(producer=PRODUCERS_MAX), last)


def test_a_refusal_removes_its_own_guard(verifications: Verifications) -> None:
    old = verifications.begin(header(), is_v2=False)
    new = verifications.begin(header(epoch=1), is_v2=False)
    verifications.refused(PRODUCER, old)
    verifications.check(header(epoch=1), new)
    verifications.refused(PRODUCER, new)
    with pytest.raises(InvalidTransactionState):
        verifications.check(header(epoch=1), new)


def test_only_the_first_batch_of_a_transaction_needs_a_guard() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        leader = partition.leader
        assert leader.needs_verification(header())
        write(partition, "a")
        assert not leader.needs_verification(header(1))
        partition.append(transactional("a", sequence=1), NOW_MS)
        assert leader.needs_verification(header(epoch=1)), "a new epoch is another producer's"
        decide(partition, commit=True)
        assert leader.needs_verification(header(2))
        with pytest.raises(InvalidTransactionState):
            partition.append(transactional("a", sequence=2), NOW_MS)

    tell(story)


def test_a_repetition_needs_no_guard_after_the_end_of_its_transaction() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a")
        decide(partition, commit=True)
        assert not partition.leader.needs_verification(header())
        assert partition.append(transactional("a"), NOW_MS).is_duplicate
        decide(partition, commit=True, epoch=1, is_v2=True)
        assert not partition.leader.needs_verification(header())
        with pytest.raises(StaleProducerEpoch):
            partition.append(transactional("a"), NOW_MS)

    tell(story)


def test_a_marker_between_question_and_answer_ends_the_guard() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        guard = partition.leader.begin_verification(header())
        decide(partition, commit=False)
        with pytest.raises(InvalidTransactionState):
            partition.append(transactional("a"), NOW_MS, guard=guard)
        assert partition.last_stable_offset == partition.high_watermark == 0

    tell(story)


def test_the_guard_of_an_earlier_leadership_is_refused_so_that_the_client_tries_again() -> None:
    async def story(broker: HandlersStory) -> None:
        guard = broker.elect().leader.begin_verification(header())
        partition = broker.elect(epoch=2)
        with pytest.raises(PartitionRefused) as refused:
            partition.append(transactional("a"), NOW_MS, guard=guard)
        assert refused.value.reason is Refusal.NOT_LEADER
        assert isinstance(guard, VerificationGuard)

    tell(story)


def test_a_batch_of_the_brokers_own_has_a_producer_without_sequence_numbers() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        batch = transactional("a", sequence=-1)
        guard = partition.leader.begin_verification(check(batch))
        for _ in range(2):
            appending = asyncio.ensure_future(partition.leader.append_committed(batch, NOW_MS, guard))
            await broker.sync()
            await appending
        assert partition.log.log_end == 2
        decide(partition, commit=True)
        await broker.sync()
        assert partition.last_stable_offset == 3

    tell(story)


def test_the_last_stable_offset_of_a_leader_follows_its_high_watermark() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        write(partition, "a")
        decide(partition, commit=True)
        broker.append("b")
        await broker.sync()
        seen = []
        for end in range(4):
            broker.report(end)
            await broker.turn()
            seen.append((partition.high_watermark, partition.last_stable_offset))
        assert seen == [(0, 0), (1, 0), (2, 2), (3, 3)]
        assert partition.log.producers.transactions.replaced == []

    tell(story)


def test_a_follower_has_a_last_stable_offset_of_its_own() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a")
        decide(partition, commit=False)
        data = partition.log.read(0, 1 << 20, 2)
        other = broker.begin_to_follow(1)
        other.replicate(data, 1, 0, NOW_MS)
        assert (other.partition.high_watermark, other.partition.last_stable_offset) == (1, 0)
        await broker.sync()
        other.replicate(b"", 2, 0, NOW_MS)
        assert (other.partition.high_watermark, other.partition.last_stable_offset) == (2, 2)
        assert other.partition.log.aborted(0, 2) == [(PRODUCER, 0)]

    tell(story)
