"""One transactional id: epochs, fencing, repeated requests, and the decision, in both versions of the protocol."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.states import TransactionState
from cordwood.cluster.transactions.transaction import (
    EPOCH_MAX,
    AddedPartition,
    ProducerIdNeeded,
    Transaction,
)
from cordwood.storage.types import ProducerIdAndEpoch

TIMEOUT_MS, NOW_MS = 60_000, 1_700_000_000_000
ONE, TWO = (AddedPartition(UUID(int=1), "flights", partition) for partition in (0, 1))
LAST_EPOCH = EPOCH_MAX - 1
"""The highest epoch that a client gets."""

S = TransactionState


class TransactionFixture:
    """One transactional id whose transitions are all durable at once. `code` is that of the last refusal."""

    def __init__(self, epoch: int = 0, producer_id: int = 7) -> None:
        created = Transaction.create(producer_id, TIMEOUT_MS, NOW_MS)
        self.now = created.initialize(TIMEOUT_MS, None, NOW_MS)._replace(epoch=epoch)
        self.code = ErrorCode.none
        self.now_ms = NOW_MS

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self.now.producer

    def _take(self, transition: "Transaction | Refused") -> "TransactionFixture":
        if isinstance(transition, Refused):
            self.code = transition.code
        else:
            self.code, self.now = ErrorCode.none, transition
        return self

    def init(self, expected: tuple[int, int] | None = None, *, spare: int | None = None) -> "TransactionFixture":
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        try:
            return self._take(self.now.initialize(TIMEOUT_MS, known, self.now_ms, spare))
        except Refused as refusal:
            return self._take(refusal)

    def add(
        self, *partitions: AddedPartition, producer: tuple[int, int] | None = None, **how: object
    ) -> "TransactionFixture":
        by = self.producer if producer is None else ProducerIdAndEpoch(*producer)
        try:
            return self._take(self.now.add(by, partitions or (ONE,), self.now_ms, **how))  # type: ignore[arg-type]
        except Refused as refusal:
            return self._take(refusal)

    def end(
        self, verb: str, *, v2: bool = False, producer: tuple[int, int] | None = None, **how: object
    ) -> "TransactionFixture":
        by = self.producer if producer is None else ProducerIdAndEpoch(*producer)
        try:
            return self._take(
                self.now.end(by, self.now_ms, commit=verb == "commit", is_v2=v2, **how)  # type: ignore[arg-type]
            )
        except Refused as refusal:
            return self._take(refusal)

    def complete(self) -> "TransactionFixture":
        return self._take(self.now.complete(self.now_ms))

    def fence(self) -> "TransactionFixture":
        return self._take(self.now.fence(self.now_ms))


@pytest.fixture
def transaction() -> TransactionFixture:
    return TransactionFixture()


def test_a_new_producer_begins_with_epoch_0(transaction: TransactionFixture) -> None:
    assert transaction.producer == (7, 0)
    assert transaction.now.state is S.EMPTY


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_v1_transaction_keeps_its_epoch(transaction: TransactionFixture, verb: str) -> None:
    transaction.add(ONE).add(TWO)
    assert transaction.now.state is S.ONGOING
    assert transaction.now.partitions == (ONE, TWO)
    transaction.end(verb)
    assert transaction.now.state is (S.PREPARE_COMMIT if verb == "commit" else S.PREPARE_ABORT)
    assert transaction.now.is_commit is (verb == "commit")
    transaction.complete()
    assert transaction.now.state is (S.COMPLETE_COMMIT if verb == "commit" else S.COMPLETE_ABORT)
    assert transaction.producer == (7, 0)
    assert transaction.now.partitions == ()


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_the_end_of_a_v2_transaction_raises_the_epoch(transaction: TransactionFixture, verb: str) -> None:
    transaction.add(ONE, is_v2=True).end(verb, v2=True)
    assert transaction.producer == transaction.now.next_producer == (7, 1)
    transaction.complete()
    assert transaction.producer == (7, 1)


# Epochs of producers (KIP-98, KIP-360).


def test_another_producer_fences_the_one_before(transaction: TransactionFixture) -> None:
    transaction.init()
    assert transaction.producer == (7, 1)
    assert transaction.add(producer=(7, 0)).code is ErrorCode.producer_fenced
    assert transaction.end("commit", producer=(7, 0)).code is ErrorCode.producer_fenced


def test_a_producer_goes_on_after_an_error_with_the_next_epoch(transaction: TransactionFixture) -> None:
    transaction.init(expected=(7, 0))
    assert transaction.producer == (7, 1)


def test_a_repeated_request_for_an_epoch_gets_the_same_answer(transaction: TransactionFixture) -> None:
    for _ in range(3):
        transaction.init(expected=(7, 0))
        assert transaction.producer == (7, 1)


def test_a_producer_that_was_fenced_gets_no_epoch(transaction: TransactionFixture) -> None:
    transaction.init(expected=(7, 0)).init()
    for expected in ((7, 0), (7, 1), (8, 2)):
        assert transaction.init(expected=expected).code is ErrorCode.producer_fenced
    assert transaction.producer == (7, 2)


def test_an_unknown_id_takes_any_expected_producer() -> None:
    created = Transaction.create(9, TIMEOUT_MS, NOW_MS)
    assert created.initialize(TIMEOUT_MS, ProducerIdAndEpoch(3, 5), NOW_MS).producer == (9, 0)


def test_an_ongoing_transaction_is_fenced_and_aborted(transaction: TransactionFixture) -> None:
    transaction.add().init()
    assert transaction.now.state is S.PREPARE_ABORT
    assert transaction.now.is_v2, "the marker has an epoch of its own"
    assert transaction.producer == (7, 1)
    assert transaction.init().code is ErrorCode.concurrent_transactions
    transaction.complete().init()
    # The fencing epoch 1 was never handed out.
    assert transaction.producer == (7, 2)


def test_a_fenced_producer_does_not_abort_its_successors_transaction(transaction: TransactionFixture) -> None:
    transaction.init().add()
    assert transaction.init(expected=(7, 0)).code is ErrorCode.producer_fenced
    assert transaction.now.state is S.ONGOING


def test_a_repeated_request_that_arrives_late_aborts_nothing(transaction: TransactionFixture) -> None:
    transaction.init(expected=(7, 0)).add()
    assert transaction.init(expected=(7, 0)).code is ErrorCode.producer_fenced
    assert transaction.now.state is S.ONGOING


def test_a_producer_that_the_coordinator_has_fenced_gets_no_epoch(transaction: TransactionFixture) -> None:
    """The epoch before its own is that of no repeated request any more."""
    transaction.init(expected=(7, 0)).add().fence().complete()
    for expected in ((7, 0), (7, 1)):
        assert transaction.init(expected=expected).code is ErrorCode.producer_fenced


def test_a_new_producer_brings_its_timeout(transaction: TransactionFixture) -> None:
    assert transaction.now.initialize(1000, None, NOW_MS).timeout_ms == 1000


def test_a_fence_that_was_not_written_does_not_raise_the_epoch_twice(transaction: TransactionFixture) -> None:
    ongoing = transaction.add().now
    lost = ongoing.fence(NOW_MS)
    assert ongoing.fence(NOW_MS).epoch == lost.epoch == 1


@pytest.mark.parametrize("verb", ["commit", "abort"])
@pytest.mark.parametrize("v2", [False, True])
def test_an_end_that_races_with_the_coordinators_abort_is_fenced(
    transaction: TransactionFixture, verb: str, v2: bool
) -> None:
    transaction.add(is_v2=v2).fence()
    assert transaction.end(verb, v2=v2, producer=(7, 0)).code is ErrorCode.producer_fenced
    transaction.complete()
    assert transaction.end(verb, v2=v2, producer=(7, 0)).code is ErrorCode.producer_fenced


def test_while_markers_are_written_there_is_no_other_transaction(transaction: TransactionFixture) -> None:
    transaction.add().end("commit")
    assert transaction.init().code is ErrorCode.concurrent_transactions
    assert transaction.add(TWO).code is ErrorCode.concurrent_transactions


# Exhausted epochs.


def test_exhausted_epochs_rotate_the_producer_id() -> None:
    transaction = TransactionFixture(epoch=LAST_EPOCH)
    with pytest.raises(ProducerIdNeeded):
        transaction.init()
    transaction.init(spare=8)
    assert transaction.producer == (8, 0)
    assert transaction.init(expected=(7, LAST_EPOCH)).code is ErrorCode.producer_fenced


def test_a_repeated_request_is_known_after_the_rotation() -> None:
    transaction = TransactionFixture(epoch=LAST_EPOCH)
    transaction.init(expected=(7, LAST_EPOCH), spare=8)
    assert transaction.producer == (8, 0)
    assert transaction.init(expected=(7, LAST_EPOCH)).producer == (8, 0)
    assert transaction.init(expected=(7, LAST_EPOCH - 1)).code is ErrorCode.producer_fenced


def test_a_repeated_request_is_known_after_a_transaction_of_the_new_producer_id() -> None:
    transaction = TransactionFixture(epoch=LAST_EPOCH)
    transaction.init(expected=(7, LAST_EPOCH), spare=8)
    transaction.add().end("commit").complete()
    assert transaction.init(expected=(7, LAST_EPOCH)).code is ErrorCode.none
    assert transaction.producer == (8, 0)


def test_the_fence_at_the_last_epoch_takes_the_one_that_is_left() -> None:
    transaction = TransactionFixture(epoch=LAST_EPOCH).add().fence()
    assert transaction.producer == (7, EPOCH_MAX)
    transaction.complete().init(spare=8)
    assert transaction.producer == (8, 0)


def test_a_late_end_after_a_timeout_at_the_last_epoch_is_fenced() -> None:
    for verb in ("commit", "abort"):
        transaction = TransactionFixture(epoch=LAST_EPOCH).add(is_v2=True).fence()
        late = (7, LAST_EPOCH)
        assert transaction.end(verb, v2=True, producer=late).code is ErrorCode.producer_fenced
        transaction.complete()
        assert transaction.end(verb, v2=True, producer=late).code is ErrorCode.producer_fenced


def test_the_epoch_never_overflows() -> None:
    transaction = TransactionFixture(epoch=EPOCH_MAX).add().fence()
    assert transaction.producer.epoch == EPOCH_MAX


def test_a_v2_transaction_at_the_last_epoch_ends_with_another_producer_id() -> None:
    transaction = TransactionFixture(epoch=LAST_EPOCH).add(is_v2=True)
    with pytest.raises(ProducerIdNeeded):
        transaction.end("commit", v2=True)
    transaction.end("commit", v2=True, spare_id=8)
    # The markers have the last epoch of the old id, and the client gets the new one.
    assert transaction.producer == (7, EPOCH_MAX)
    assert transaction.now.next_producer == (8, 0)
    assert transaction.end("commit", v2=True, producer=(7, LAST_EPOCH)).code is ErrorCode.concurrent_transactions
    transaction.complete()
    assert transaction.producer == (8, 0)
    assert transaction.end("commit", v2=True, producer=(7, LAST_EPOCH)).code is ErrorCode.none
    assert transaction.end("abort", v2=True, producer=(7, LAST_EPOCH)).code is ErrorCode.invalid_txn_state
    assert transaction.producer == (8, 0)
    assert transaction.init().now.next_producer == (8, 1)


def test_the_client_may_use_its_new_producer_id_before_the_markers_are_written() -> None:
    transaction = TransactionFixture(epoch=LAST_EPOCH).add(is_v2=True).end("commit", v2=True, spare_id=8)
    new = (8, 0)
    assert transaction.add(producer=new, is_v2=True).code is ErrorCode.concurrent_transactions
    assert transaction.end("abort", v2=True, producer=new).code is ErrorCode.concurrent_transactions
    assert transaction.init(expected=new).code is ErrorCode.concurrent_transactions
    with pytest.raises(Refused) as refused:
        transaction.now.verify(ProducerIdAndEpoch(*new), [ONE])
    assert refused.value.code is ErrorCode.concurrent_transactions
    assert transaction.add(producer=(7, EPOCH_MAX), is_v2=True).code is ErrorCode.invalid_producer_id_mapping
    assert transaction.add(producer=(8, 1), is_v2=True).code is ErrorCode.producer_fenced
    transaction.complete()
    assert transaction.add(producer=new, is_v2=True).code is ErrorCode.none


# AddPartitionsToTxn.


def test_another_producer_id_is_an_invalid_mapping(transaction: TransactionFixture) -> None:
    assert transaction.add(producer=(8, 0)).code is ErrorCode.invalid_producer_id_mapping
    assert transaction.end("commit", producer=(8, 0)).code is ErrorCode.invalid_producer_id_mapping
    assert transaction.end("commit", v2=True, producer=(8, 0)).code is ErrorCode.invalid_producer_id_mapping


def test_partitions_that_are_in_the_transaction_change_nothing(transaction: TransactionFixture) -> None:
    ongoing = transaction.add(ONE, TWO).now
    assert transaction.add(TWO, ONE, ONE).now is ongoing


def test_the_transaction_begins_with_its_first_partition(transaction: TransactionFixture) -> None:
    transaction.now_ms += 5
    transaction.add(ONE)
    transaction.now_ms += 7
    transaction.add(TWO)
    assert transaction.now.start_ms == NOW_MS + 5
    assert transaction.now.update_ms == NOW_MS + 12


def test_a_pending_transition_refuses_others(transaction: TransactionFixture) -> None:
    assert transaction.add(is_pending=True).code is ErrorCode.concurrent_transactions
    transaction.add()
    assert transaction.end("commit", is_pending=True).code is ErrorCode.concurrent_transactions
    # A fenced producer learns at once that it is.
    assert transaction.end("commit", producer=(7, -1), is_pending=True).code is ErrorCode.producer_fenced


def test_verification_knows_the_partitions_of_the_transaction(transaction: TransactionFixture) -> None:
    created_again = ONE._replace(topic_id=UUID(int=2))
    transaction.add(ONE)
    assert transaction.now.verify(transaction.producer, [ONE, TWO, created_again]) == [
        ErrorCode.none,
        ErrorCode.transaction_abortable,
        ErrorCode.transaction_abortable,
    ]
    transaction.end("commit")
    with pytest.raises(Refused) as refused:
        transaction.now.verify(transaction.producer, [ONE])
    assert refused.value.code is ErrorCode.concurrent_transactions


# EndTxn.


@pytest.mark.parametrize(("verb", "other"), [("commit", "abort"), ("abort", "commit")])
def test_a_v1_end_may_be_repeated_and_not_changed(transaction: TransactionFixture, verb: str, other: str) -> None:
    transaction.add().end(verb)
    assert transaction.end(verb).code is ErrorCode.concurrent_transactions
    assert transaction.end(other).code is ErrorCode.invalid_txn_state
    complete = transaction.complete().now
    assert transaction.end(verb).now is complete
    assert transaction.end(other).code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_v1_transaction_without_partitions_cannot_be_ended(transaction: TransactionFixture, verb: str) -> None:
    assert transaction.end(verb).code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize(("verb", "other"), [("commit", "abort"), ("abort", "commit")])
def test_a_v2_end_is_repeated_with_the_epoch_before(transaction: TransactionFixture, verb: str, other: str) -> None:
    transaction.add(is_v2=True).end(verb, v2=True)
    assert transaction.end(verb, v2=True, producer=(7, 0)).code is ErrorCode.concurrent_transactions
    assert transaction.end(other, v2=True, producer=(7, 0)).code is ErrorCode.invalid_txn_state
    # The stored epoch is the next transaction's: its client waits.
    for either in (verb, other):
        assert transaction.end(either, v2=True, producer=(7, 1)).code is ErrorCode.concurrent_transactions
    assert transaction.end(verb, v2=True, producer=(7, 2)).code is ErrorCode.producer_fenced
    complete = transaction.complete().now
    assert transaction.end(verb, v2=True, producer=(7, 0)).now is complete
    assert transaction.now.next_producer == (7, 1)
    assert transaction.end(other, v2=True, producer=(7, 0)).code is ErrorCode.invalid_txn_state
    assert transaction.end(verb, v2=True, producer=(7, 2)).code is ErrorCode.producer_fenced


def test_a_v2_end_repeats_no_v1_end(transaction: TransactionFixture) -> None:
    """The epoch before belongs to the producer's last InitProducerId."""
    transaction.init(expected=(7, 0)).add().end("commit").complete()
    assert transaction.end("commit", v2=True, producer=(7, 0)).code is ErrorCode.producer_fenced


def test_an_empty_transaction_begins_with_its_end(transaction: TransactionFixture) -> None:
    transaction.now_ms += 5
    transaction.end("abort", v2=True)
    assert (transaction.now.start_ms, transaction.now.update_ms) == (NOW_MS + 5, NOW_MS + 5)


def test_an_empty_v2_transaction_may_be_aborted_but_not_committed(transaction: TransactionFixture) -> None:
    for _ in range(3):
        epoch = transaction.producer.epoch
        assert transaction.end("commit", v2=True).code is ErrorCode.invalid_txn_state
        transaction.end("abort", v2=True)
        assert transaction.now.state is S.PREPARE_ABORT
        transaction.complete()
        assert transaction.producer == (7, epoch + 1)
    transaction.add(is_v2=True).end("commit", v2=True).complete()
    assert transaction.end("commit", v2=True).code is ErrorCode.invalid_txn_state
    assert transaction.end("abort", v2=True).code is ErrorCode.none


def test_a_repeated_end_of_an_empty_transaction_is_fenced(transaction: TransactionFixture) -> None:
    transaction.init(expected=(7, 0))
    # Only a decided transaction has been ended: that the epoch before is known means nothing here.
    assert transaction.end("abort", v2=True, producer=(7, 0)).code is ErrorCode.producer_fenced


# Time.


def test_only_an_ongoing_transaction_times_out(transaction: TransactionFixture) -> None:
    late_ms = NOW_MS + TIMEOUT_MS + 1
    assert not transaction.now.is_timed_out(late_ms)
    transaction.add()
    assert not transaction.now.is_timed_out(late_ms - 1)
    assert transaction.now.is_timed_out(late_ms)
    transaction.end("commit")
    assert not transaction.now.is_timed_out(late_ms)


def test_only_ids_without_a_transaction_expire(transaction: TransactionFixture) -> None:
    assert transaction.now.is_expired(NOW_MS + 5, 5)
    assert not transaction.now.is_expired(NOW_MS + 4, 5)
    assert transaction.now.expire().state is S.DEAD
    transaction.add()
    assert not transaction.now.is_expired(NOW_MS + 5, 5)
    transaction.end("abort")
    assert not transaction.now.is_expired(NOW_MS + 5, 5)
    decided = transaction.now
    transaction.complete()
    assert transaction.now.is_expired(NOW_MS + 5, 5)
    assert not decided.complete(NOW_MS + 3).is_expired(NOW_MS + 5, 5), "its markers were written later"
