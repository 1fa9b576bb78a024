"""Transaction: the state of one transactional id, and every transition of it. Pure.

A method returns the next state, which counts once it is durable, or raises Refused with the client's error code. `self`
is returned for a repeated request, which changes nothing. Times are wall-clock milliseconds.

Epochs: each new producer of a transactional id has a higher epoch, and so does, in version 2 of the protocol (KIP-890),
each transaction. Clients get epochs up to EPOCH_MAX - 1, so that one is always left to fence with; then the
transactional id gets another producer id.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.states import (
    COMPLETE,
    DECIDED,
    EXPIRING,
    TransactionState,
    may_follow,
)
from cordwood.storage.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

EPOCH_MAX = (1 << 15) - 1
SHARED_PARTITIONS_MAX = 16
"""Partitions of a transaction that is worth sharing."""
NO_TIME = -1

_S = TransactionState


class ProducerIdNeeded(Exception):
    """The transition needs a new producer id: repeat it with one."""


class AddedPartition(NamedTuple):
    """A partition of a topic, by id and name: a topic that is created again with the name is another one."""

    topic_id: UUID
    topic: str
    partition: int


class Transaction(NamedTuple):
    """One transactional id with its current or last transaction. Immutable."""

    producer_id: int
    epoch: int
    last_epoch: int
    """The previous epoch, if the client raised the epoch itself: a repeated request is recognized by it."""
    previous_producer_id: int
    """The producer id before the last rotation."""
    next_producer_id: int
    """The producer id that the completion of this transaction takes; NO_PRODUCER_ID to keep the current one."""
    timeout_ms: int
    state: TransactionState
    partitions: tuple[AddedPartition, ...]
    start_ms: int
    update_ms: int
    is_v2: bool
    """True if the transaction was begun or ended in version 2 of the protocol."""

    @classmethod
    def create(cls, producer_id: int, timeout_ms: int, now_ms: int) -> "Transaction":
        """Create the state of an unknown transactional id. It is stored once `initialize` has given it an epoch."""
        none = NO_PRODUCER_EPOCH
        return cls(producer_id, none, none, NO_PRODUCER_ID, NO_PRODUCER_ID, timeout_ms, _S.EMPTY, (), -1, now_ms, False)

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the client's next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    @property
    def is_exhausted(self) -> bool:
        """True if clients get no higher epoch of this producer id."""
        return self.epoch >= EPOCH_MAX - 1

    @property
    def is_commit(self) -> bool:
        """The decision, in PrepareCommit and PrepareAbort."""
        assert self.state in DECIDED, f"{self.state} has no decision"
        return self.state is _S.PREPARE_COMMIT

    def initialize(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, now_ms: int, spare_id: int | None = None
    ) -> "Transaction":
        """Begin a new producer, or an epoch of the producer that sends `expected` (KIP-360).

        An ongoing transaction is fenced and aborted instead: the client repeats its request once that is complete.
        Raises ProducerIdNeeded if there is no `spare_id` and the epochs are exhausted.
        """
        if self.state in DECIDED:
            self._check_expected(expected)
            raise Refused(ErrorCode.concurrent_transactions)
        if self.state is _S.ONGOING:
            if expected not in (None, self.producer):
                raise Refused(ErrorCode.producer_fenced)
            return self.fence(now_ms)
        self._check_expected(expected)
        is_new = self.epoch == NO_PRODUCER_EPOCH
        producer_id, epoch, last_epoch = self.producer_id, self.epoch, self.last_epoch
        previous = self.previous_producer_id
        if not is_new and expected is not None and expected == self._last:
            # The answer to this request was lost. A new producer would have reset the last epoch.
            pass
        elif self.is_exhausted:
            if spare_id is None:
                raise ProducerIdNeeded
            last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
            producer_id, epoch, previous = spare_id, 0, producer_id
        else:
            last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
            epoch += 1
        return self._to(
            _S.EMPTY,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            previous_producer_id=previous,
            timeout_ms=shared_timeout(timeout_ms),
            partitions=(),
            start_ms=NO_TIME,
            update_ms=now_ms,
        )

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[AddedPartition],
        now_ms: int,
        *,
        is_v2: bool = False,
        is_pending: bool = False,
    ) -> "Transaction":
        """Add partitions; begin the transaction with the first. Return `self` if all of them are in it."""
        self._check_current(producer)
        self._check_settled(is_pending=is_pending)
        is_ongoing = self.state is _S.ONGOING
        known = frozenset(self.partitions)
        added = tuple(partition for partition in dict.fromkeys(partitions) if partition not in known)
        if is_ongoing and not added:
            return self
        return self._to(
            _S.ONGOING,
            partitions=shared_partitions(self.partitions + added),
            start_ms=self.start_ms if is_ongoing else now_ms,
            update_ms=now_ms,
            is_v2=is_v2,
        )

    def verify(self, producer: ProducerIdAndEpoch, partitions: Iterable[AddedPartition]) -> list[ErrorCode]:
        """Return for each partition whether it is in the transaction: `none` or TRANSACTION_ABORTABLE."""
        self._check_current(producer)
        self._check_settled(is_pending=False)
        known = frozenset(self.partitions)
        return [ErrorCode.none if partition in known else ErrorCode.transaction_abortable for partition in partitions]

    def end(
        self,
        producer: ProducerIdAndEpoch,
        now_ms: int,
        *,
        commit: bool,
        is_v2: bool,
        is_pending: bool = False,
        spare_id: int | None = None,
    ) -> "Transaction":
        """Decide the transaction. Return `self` for a repeated request whose transaction is complete.

        Raises ProducerIdNeeded if there is no `spare_id` and a version 2 transaction has used the last epoch.
        """
        is_retry = is_v2 and self.is_v2 and self.state in DECIDED | COMPLETE and producer == self._last
        if not is_retry:
            self._check_current(producer)
            if is_v2 and self.state in DECIDED:
                # The client has the epoch of its next transaction already, which waits for the markers of this one.
                raise Refused(ErrorCode.concurrent_transactions)
        if is_pending:
            raise Refused(ErrorCode.concurrent_transactions)
        if self.state is _S.ONGOING:
            return self._end_by_client(now_ms, commit, is_v2, spare_id)
        if is_retry or not is_v2:
            return self._repeated_end(commit)
        if commit:
            raise Refused(ErrorCode.invalid_txn_state)
        return self._end_by_client(now_ms, commit, is_v2, spare_id)

    def fence(self, now_ms: int) -> "Transaction":
        """Abort the ongoing transaction with a raised epoch, which no client gets: its producer can do nothing more."""
        fenced = self._to(
            _S.PREPARE_EPOCH_FENCE, epoch=min(self.epoch + 1, EPOCH_MAX), last_epoch=NO_PRODUCER_EPOCH, is_v2=True
        )
        return fenced._to(_S.PREPARE_ABORT, update_ms=now_ms)

    def complete(self, now_ms: int) -> "Transaction":
        """End a decided transaction, all of whose markers are committed."""
        state = _S.COMPLETE_COMMIT if self.is_commit else _S.COMPLETE_ABORT
        producer = self.next_producer
        return self._to(
            state,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            previous_producer_id=self.producer_id
            if producer.producer_id != self.producer_id
            else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
            update_ms=now_ms,
        )

    def expire(self) -> "Transaction":
        """Remove the transactional id."""
        return self._to(_S.DEAD, partitions=())

    def counted_from(self, now_ms: int) -> "Transaction":
        """Return the transaction begun at `now_ms` at the latest: a clock that is set back does not prolong it."""
        return self._replace(start_ms=now_ms) if self.start_ms > now_ms else self

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is _S.ONGOING and now_ms - self.start_ms > self.timeout_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in EXPIRING and now_ms - self.update_ms >= expiration_ms

    @property
    def _last(self) -> ProducerIdAndEpoch | None:
        """The producer id and epoch before the client raised the epoch itself; None if it did not."""
        if self.last_epoch == NO_PRODUCER_EPOCH:
            return None
        return ProducerIdAndEpoch(self.producer_id if self.epoch else self.previous_producer_id, self.last_epoch)

    def _check_current(self, producer: ProducerIdAndEpoch) -> None:
        # The next one: after the last epoch, the client has its new producer id before the markers are written.
        current = self.next_producer
        if producer.producer_id != current.producer_id:
            raise Refused(ErrorCode.invalid_producer_id_mapping)
        if producer.epoch != current.epoch:
            raise Refused(ErrorCode.producer_fenced)

    def _check_expected(self, expected: ProducerIdAndEpoch | None) -> None:
        if expected is None or self.epoch == NO_PRODUCER_EPOCH:
            return
        if expected not in (self.next_producer, self._last):
            raise Refused(ErrorCode.producer_fenced)

    def _check_settled(self, *, is_pending: bool) -> None:
        if is_pending or self.state in DECIDED:
            raise Refused(ErrorCode.concurrent_transactions)

    def _repeated_end(self, commit: bool) -> "Transaction":
        """Return `self` if the transaction was decided and completed so."""
        if self.state is (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT):
            return self
        if self.state is (_S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT):
            raise Refused(ErrorCode.concurrent_transactions)
        raise Refused(ErrorCode.invalid_txn_state)

    def _end_by_client(self, now_ms: int, commit: bool, is_v2: bool, spare_id: int | None) -> "Transaction":
        epoch, last_epoch, next_producer_id = self.epoch, self.last_epoch, NO_PRODUCER_ID
        if is_v2:
            if self.is_exhausted:
                if spare_id is None:
                    raise ProducerIdNeeded
                next_producer_id = spare_id
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
        return self._to(
            _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
            epoch=epoch,
            last_epoch=last_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            update_ms=now_ms,
            is_v2=is_v2,
        )

    def _to(self, state: TransactionState, **changes: object) -> "Transaction":
        assert may_follow(self.state, state), f"{state} must not follow {self.state}"
        return self._replace(state=state, **changes)  # type: ignore[arg-type]


def shared_partitions(partitions: tuple[AddedPartition, ...]) -> tuple[AddedPartition, ...]:
    """Return one object for equal tuples: a hundred thousand open transactions are in few different partitions.

    A longer one stays as it is: a transaction that grows would leave its former ones in the cache.
    """
    return _shared_partitions(partitions) if len(partitions) <= SHARED_PARTITIONS_MAX else partitions


@functools.lru_cache(4096)
def _shared_partitions(partitions: tuple[AddedPartition, ...]) -> tuple[AddedPartition, ...]:
    return partitions


@functools.lru_cache(4096)
def shared_timeout(timeout_ms: int) -> int:
    """Return one object for equal timeouts."""
    return timeout_ms
