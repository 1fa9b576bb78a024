"""Shard: the transactional ids of one partition of `__transaction_state`, in memory."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

from cordwood.cluster.coordination.shard import Content, CoordinatorShard
from cordwood.cluster.coordination.topic import PartitionLeadership
from cordwood.cluster.transactions.formats import Intern, decode_key, decode_value, encode_key, encode_value
from cordwood.cluster.transactions.states import DECIDED, OPEN, TransactionState
from cordwood.cluster.transactions.transaction import AddedPartition, Transaction


class TransactionShard(CoordinatorShard):
    """One partition's transactional ids.

    A transaction is in `transactions` once it is committed, and while it is being written in `_pending`; there is one
    write at a time for each transactional id.
    """

    def __init__(self, leadership: PartitionLeadership, intern: Intern) -> None:
        super().__init__(leadership)
        self.transactions: dict[str, Transaction] = {}
        """Changed by `put`, unless the state stays the same."""
        self.counts = dict.fromkeys(TransactionState, 0)
        """Transactional ids by state."""
        self.open: dict[str, None] = {}
        """Transactional ids with an open transaction."""
        self.decided: list[str] = []
        """Transactional ids of which the log has a decision, as of the end of loading."""
        self._intern = intern
        self._pending: dict[str, Transaction] = {}
        self._settled: dict[str, asyncio.Future[None]] = {}
        self._unwritten: dict[str, None] = {}
        """Completed transactional ids whose completion is not in the log yet."""

    def restore(self, contents: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        for raw_key, value in contents:
            transactional_id = decode_key(raw_key)
            if transactional_id is not None:
                transaction = decode_value(value, self._intern)
                self.put(transactional_id, transaction)
                if transaction.state in DECIDED:
                    self.decided.append(transactional_id)
            yield

    def put(self, transactional_id: str, transaction: Transaction) -> None:
        """Replace the state of a transactional id, or remove it if it is dead."""
        state, transactions = transaction.state, self.transactions
        if transactional_id in transactions:
            self.counts[transactions[transactional_id].state] -= 1
        if state in OPEN:
            self.open[transactional_id] = None
        elif transactional_id in self.open:
            del self.open[transactional_id]
        if state is TransactionState.DEAD:
            transactions.pop(transactional_id, None)
        else:
            self.counts[state] += 1
            transactions[transactional_id] = transaction

    def is_pending(self, transactional_id: str) -> bool:
        """Return True while a transition of the transactional id is being written."""
        return transactional_id in self._pending

    def begin(self, transactional_id: str, transaction: Transaction) -> None:
        """Note a transition that is being written. Call `settle` or `abandon` next."""
        assert transactional_id not in self._pending, "one write at a time"
        self._pending[transactional_id] = transaction

    def settle(self, transactional_id: str) -> None:
        """Apply the transition, which is in the log."""
        transaction = self._pending.pop(transactional_id)
        self._unwritten.pop(transactional_id, None)
        self.put(transactional_id, transaction)
        if transaction.state not in DECIDED:
            self._wake(transactional_id)

    def abandon(self, transactional_id: str) -> None:
        """Forget the transition, which could not be written."""
        del self._pending[transactional_id]
        self._wake(transactional_id)

    def complete(self, transactional_id: str, completed: Transaction) -> None:
        """Apply a completion before it is written: it only states that the markers are committed."""
        self.put(transactional_id, completed)
        self._unwritten[transactional_id] = None
        self._wake(transactional_id)

    def unwritten(self, count: int) -> list[str]:
        """Return up to `count` ids whose completion is still to be written, but for those with a newer state."""
        return list(islice((one for one in self._unwritten if one not in self._pending), count))

    def written(self, transactional_ids: Iterable[str]) -> None:
        """Note that completions are in the log."""
        for transactional_id in transactional_ids:
            self._unwritten.pop(transactional_id, None)

    def let_go(self) -> None:
        """Wake all that wait for a transition: another broker coordinates them now."""
        for transactional_id in list(self._settled):
            self._wake(transactional_id)

    def settled(self, transactional_id: str) -> "asyncio.Future[None]":
        """Return a future that is done once no transition is being written and no marker of a decision is missing.

        The future is shared: wait for it without cancelling it.
        """
        future = self._settled.get(transactional_id)
        if future is None:
            future = self._settled[transactional_id] = asyncio.get_running_loop().create_future()
        return future

    def _wake(self, transactional_id: str) -> None:
        future = self._settled.pop(transactional_id, None)
        if future is not None:
            future.set_result(None)


class PartitionNames:
    """One shared object for each partition that is in any transaction, so that open transactions cost little memory."""

    def __init__(self) -> None:
        self._by_topic: dict[UUID, dict[int, AddedPartition]] = {}

    def intern(self, topic_id: UUID, topic: str, partition: int) -> AddedPartition:
        shared = self._by_topic.setdefault(topic_id, {})
        known = shared.get(partition)
        if known is None:
            known = shared[partition] = AddedPartition(topic_id, topic, partition)
        return known

    def forget(self, topic_id: UUID) -> None:
        """Forget a deleted topic."""
        self._by_topic.pop(topic_id, None)


def record(transactional_id: str, transaction: Transaction) -> Content:
    """Return the record of a transactional id; a tombstone if it is removed."""
    is_dead = transaction.state is TransactionState.DEAD
    return encode_key(transactional_id), None if is_dead else encode_value(transaction)
