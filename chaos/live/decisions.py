"""Decisions about transactions, as the markers in a partition's log have them, and the check that they agree."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.history import Operation, Outcome
from cordwood.storage.batch import BatchHeader
from cordwood.storage.control import EndTransactionMarker, decode_marker

CASES_SHOWN = 10

Client = tuple[int, int]
"""A client, and its number of a transaction."""


class MarkerOnDisk(NamedTuple):
    """The records and markers of one transaction in a partition's log."""

    partition: int
    values: tuple[int, ...]
    """The values of the transaction's records."""
    is_commit: bool | None
    """None where the log has no marker."""
    open_ms: int
    """The time from the first record to the marker; 0 without one."""


class Asked(NamedTuple):
    """The state of a transaction at its client."""

    is_commit: bool | None
    """Whether EndTxn asked for a commit; None where it was never sent."""
    outcome: Outcome


class _OpenTransaction(NamedTuple):
    values: list[int]
    first_ms: int


class DecisionReader:
    """A reader of one log, batch by batch, that assigns each marker to the records before it."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._open: dict[int, _OpenTransaction] = {}
        self.decisions: list[MarkerOnDisk] = []

    def take(self, header: BatchHeader, batch: bytes, values: Sequence[int]) -> None:
        """Take the next batch. `values` are those of its records."""
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                self._decide(header, marker)
        elif header.is_transactional:
            opened = self._open.setdefault(header.producer_id, _OpenTransaction([], header.base_timestamp))
            opened.values.extend(values)

    def end(self) -> list[MarkerOnDisk]:
        """Return all decisions, with the transactions that are still open as undecided ones."""
        undecided = [MarkerOnDisk(self._partition, tuple(each.values), None, 0) for each in self._open.values()]
        return self.decisions + undecided

    def _decide(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        # A marker without records follows where a retried EndTxn, or an empty part of a transaction, is decided.
        opened = self._open.pop(header.producer_id, None)
        if opened is not None:
            open_ms = max(header.max_timestamp - opened.first_ms, 0)
            self.decisions.append(MarkerOnDisk(self._partition, tuple(opened.values), marker.is_commit, open_ms))


def disagreements(
    decisions: Iterable[MarkerOnDisk], transaction_of: Callable[[int], Client | None], asked: Mapping[Client, Asked]
) -> Iterator[Anomaly]:
    """Yield where a transaction has two decisions, none, two in one log, or another than its client was answered.

    `transaction_of` returns the transaction of a record's value; None for a value that no transaction wrote.
    """
    found: dict[Client, list[MarkerOnDisk]] = {}
    mixed: list[MarkerOnDisk] = []
    for decision in decisions:
        transactions = {transaction for value in decision.values if (transaction := transaction_of(value)) is not None}
        if len(transactions) > 1:
            mixed.append(decision)
        for transaction in transactions:
            found.setdefault(transaction, []).append(decision)
    torn = [key for key, each in found.items() if {True, False} <= {decision.is_commit for decision in each}]
    undecided = [key for key, each in found.items() if any(decision.is_commit is None for decision in each)]
    wrong = [key for key, each in found.items() if _is_wrong(asked.get(key), {one.is_commit for one in each})]
    yield from _accused("torn-transaction", "One marker decides the records of two transactions", map(_words, mixed))
    for kind, sentence, cases in (
        ("torn-transaction", "A transaction is committed in one partition and aborted in another", torn),
        ("open-transaction", "A transaction has no marker in a partition at the end", undecided),
        ("wrong-decision", "A transaction's markers are not what its client was answered", wrong),
    ):
        yield from _accused(kind, sentence, (_proof(key, found[key], asked.get(key)) for key in cases))


def _is_wrong(asked: Asked | None, decided: set[bool | None]) -> bool:
    """Return whether the markers contradict the client's state."""
    if asked is None or asked.is_commit is None:
        # Without EndTxn, the coordinator can only abort.
        return True in decided
    if asked.outcome == Outcome.OK:
        return (not asked.is_commit) in decided
    return asked.outcome == Outcome.FAIL and asked.is_commit in decided


def _accused(kind: str, sentence: str, cases: Iterable[Operation]) -> Iterator[Anomaly]:
    if shown := list(cases):
        yield Anomaly(kind, f"{sentence}: {len(shown)}.", tuple(shown[:CASES_SHOWN]), len(shown))


def _proof(key: Client, decisions: Sequence[MarkerOnDisk], asked: Asked | None) -> Operation:
    return {
        "operation": "transaction",
        "client": key[0],
        "transaction": key[1],
        "asked": "nothing" if asked is None else str(asked),
        "decided": "; ".join(f"partition {each.partition}: {_name(each.is_commit)}" for each in decisions),
    }


def _words(decision: MarkerOnDisk) -> Operation:
    return {"operation": "marker", "partition": decision.partition, "values": str(decision.values)}


def _name(is_commit: bool | None) -> str:
    return "no marker" if is_commit is None else "commit" if is_commit else "abort"
