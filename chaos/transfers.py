"""Money transfers between accounts: each is two records of one transaction, and balances that any reader can check."""

import random
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.history import Operation

ACCOUNTS = 100
AMOUNT_MAX = 100
HEADER = "transfer"
"""The name of the record header that holds an entry."""
CASES_SHOWN = 10

_FORM = struct.Struct(">IHiq")


class TransferEntry(NamedTuple):
    """One record of a transfer: the change of one account. The amounts of a transfer's two entries add up to zero."""

    transaction: int
    """The client's number of the transaction, unique over all attempts."""
    account: int
    amount: int
    balance: int
    """The sum of this client's amounts of this account, this one included."""


def encode(entry: TransferEntry) -> bytes:
    """Return the value of the header."""
    return _FORM.pack(*entry)


def decode(data: bytes) -> TransferEntry | None:
    """Return the entry of a header; None if it is malformed."""
    return TransferEntry(*_FORM.unpack(data)) if len(data) == _FORM.size else None


class TransferOrders:
    """One client's endless orders, the same in each of its lives, and its balances up to the next order.

    An order is applied when its transaction is committed. An aborted one is next again, in another transaction.
    """

    def __init__(self, seed: str, partitions: int) -> None:
        assert partitions > 1, "the two accounts of a transfer are in two partitions"
        self._seed, self._partitions = seed, partitions
        self._balances: dict[int, int] = {}
        self.next = 0
        """The number of the next order, which is the number of applied ones."""

    def entries(self, transaction: int) -> tuple[TransferEntry, TransferEntry]:
        """Return the two entries of the next order, as written by this transaction."""
        payer, payee, amount = self._order(self.next)
        return (
            TransferEntry(transaction, payer, -amount, self._balances.get(payer, 0) - amount),
            TransferEntry(transaction, payee, amount, self._balances.get(payee, 0) + amount),
        )

    def partition_of(self, account: int) -> int:
        """Return the partition of all entries of an account."""
        return account % self._partitions

    def seek(self, order: int) -> None:
        """Go to an order: to a later one by applying those between, to an earlier one from the start."""
        if order < self.next:
            self._balances.clear()
            self.next = 0
        while self.next < order:
            payer, payee, amount = self._order(self.next)
            self._balances[payer] = self._balances.get(payer, 0) - amount
            self._balances[payee] = self._balances.get(payee, 0) + amount
            self.next += 1

    def _order(self, number: int) -> tuple[int, int, int]:
        """Return payer, payee and amount of an order."""
        rng = random.Random(f"{self._seed}/{number}")
        payer = payee = rng.randrange(ACCOUNTS)
        while self.partition_of(payee) == self.partition_of(payer):
            payee = rng.randrange(ACCOUNTS)
        return payer, payee, rng.randint(1, AMOUNT_MAX)


class ReadEntry(NamedTuple):
    """An entry as a consumer of all partitions got it. `batch` is the number of the consumer's poll."""

    client: int
    batch: int
    entry: TransferEntry

    @property
    def operation(self) -> Operation:
        """The entry as an operation of a proof."""
        return {"operation": "transfer-read", "client": self.client, "poll": self.batch, **self.entry._asdict()}


class ReadTransfers:
    """The balances of all accounts, as one consumer of committed records sees them poll by poll.

    A transaction becomes visible partition by partition, so a poll may show one entry of a transfer before the other.
    The sum of all balances is that of the amounts of such transfers, and zero without them.
    """

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._balances: dict[tuple[int, int], int] = {}
        self._halves: dict[tuple[int, int], ReadEntry] = {}
        self._total = self._expected = 0
        self._batch = -1
        self._lost_updates: list[ReadEntry] = []
        self._wrong_sums: list[Operation] = []
        self.applied: dict[int, int] = {}
        """By client: the number of transfers that were read whole."""

    def read(self, entries: Iterable[ReadEntry]) -> None:
        """Take the entries in the order in which they were read, to the end of the log."""
        for each in entries:
            if each.batch != self._batch:
                self._end_poll()
                self._batch = each.batch
            self._take(each)
        self._end_poll()

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield the anomalies. `read` has been called with all entries."""
        yield from self._accused(
            "lost-update",
            "got entries whose balance does not follow from the entry before",
            [each.operation for each in self._lost_updates],
        )
        yield from self._accused("wrong-sum", "saw another sum of all balances after polls", self._wrong_sums)
        yield from self._accused(
            "torn-transaction",
            "got one entry of a transfer and never the other",
            [each.operation for each in self._halves.values()],
        )

    def _accused(self, kind: str, what: str, cases: list[Operation]) -> Iterator[Anomaly]:
        if cases:
            yield Anomaly(kind, f"{self._reader} {what}: {len(cases)}.", tuple(cases[:CASES_SHOWN]), len(cases))

    def _take(self, read: ReadEntry) -> None:
        entry, place = read.entry, (read.client, read.entry.account)
        before = self._balances.get(place, 0)
        if entry.balance != before + entry.amount:
            self._lost_updates.append(read)
        self._balances[place] = entry.balance
        self._total += entry.balance - before
        transfer = (read.client, entry.transaction)
        other = self._halves.pop(transfer, None)
        if other is None:
            self._halves[transfer] = read
            self._expected += entry.amount
        else:
            self._expected -= other.entry.amount
            if entry.amount + other.entry.amount:
                self._lost_updates.append(read)
            self.applied[read.client] = self.applied.get(read.client, 0) + 1

    def _end_poll(self) -> None:
        if self._total != self._expected:
            self._wrong_sums.append(
                {"operation": "poll", "number": self._batch, "sum": self._total, "expected": self._expected}
            )
            # Later polls are measured against this sum, so that each deviation counts once.
            self._total = self._expected
