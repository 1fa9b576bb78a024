"""Metrics of transactions: those that this broker coordinates, their markers, and what they hold back in partitions."""

from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, Rows, counters, gauge_over, gauges
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.transactions.states import DECIDED, OPEN, TransactionState
from cordwood.cluster.transactions.transaction import Transaction

LATE_MS = 300_000
"""The time after the longest timeout until an open transaction is late: its coordinator aborts it long before."""
NEVER_STORED = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})


def _states(watched: Watched) -> Rows:
    counts = watched.transactions.counts()
    return (((state.value,), count) for state, count in counts.items() if state not in NEVER_STORED)


def _oldest(
    name: str, meaning: str, states: frozenset[TransactionState], since_ms: Callable[[Transaction], int]
) -> Family:
    """Return the family of the age of the oldest transaction in one of the states; 0 if there is none."""

    def rows(watched: Watched) -> Rows:
        now_ms = oldest_ms = watched.wall_clock()
        for transaction in watched.transactions.open():
            if transaction.state in states:
                oldest_ms = min(oldest_ms, since_ms(transaction))
            yield None
        yield (), (now_ms - oldest_ms) / 1000

    return gauges(name, meaning, (), rows)


def _ended(watched: Watched) -> Iterator[Row]:
    measures = watched.transactions.measures
    return iter(((("commit",), measures.committed), (("abort",), measures.aborted)))


def _fenced(watched: Watched) -> Iterator[Row]:
    measures = watched.transactions.measures
    return iter(((("new_producer",), measures.replaced), (("timeout",), measures.timed_out)))


def _held_back(watched: Watched) -> Rows:
    for replica in list(watched.replicas):
        lag = replica.high_watermark - replica.last_stable_offset if replica.is_leader else 0
        yield ((replica.topic, str(replica.index)), lag) if lag else None


def _late(watched: Watched) -> Rows:
    before_ms = watched.wall_clock() - watched.transactions.max_timeout_ms - LATE_MS
    late = 0
    for replica in list(watched.replicas):
        if replica.is_leader:
            producer = replica.log.producers.oldest_in_transaction
            late += producer is not None and producer.last_timestamp < before_ms
        yield None
    yield (), late


FAMILIES: tuple[Family, ...] = (
    gauges("transactions", "Transactional ids that this broker coordinates.", ("state",), _states),
    _oldest(
        "oldest_transaction_age_seconds",
        "Age of the oldest open transaction that this broker coordinates; 0 if there is none.",
        OPEN,
        lambda transaction: transaction.start_ms,
    ),
    counters(
        "transactions_ended",
        "Transactions that this broker coordinated, and that are complete: all their markers are committed.",
        ("outcome",),
        _ended,
    ),
    counters(
        "fenced_producers",
        "Producers whose open transaction the coordinator has aborted: another producer has taken the transactional id"
        " (new_producer), or the transaction exceeded its timeout (timeout).",
        ("cause",),
        _fenced,
    ),
    gauge_over(
        "missing_transaction_markers",
        "Markers of decided transactions that their partitions have not acknowledged.",
        lambda watched: watched.transactions.decisions(),
        lambda decision: len(decision.missing),
    ),
    _oldest(
        "transaction_marker_lag_seconds",
        "Time since the decision of the oldest transaction that lacks a marker; 0 if there is none.",
        DECIDED,
        lambda transaction: transaction.update_ms,
    ),
    gauges(
        "last_stable_offset_lag_records",
        "Records between the last stable offset and the high watermark, which `read_committed` consumers wait for. Only"
        " partitions led by this broker that have such records.",
        ("topic", "partition"),
        _held_back,
    ),
    gauges(
        "late_transaction_partitions",
        "Partitions led by this broker with a transaction that is open for longer than transaction.max.timeout.ms and"
        " 5 minutes: no coordinator ends it.",
        (),
        _late,
    ),
)
