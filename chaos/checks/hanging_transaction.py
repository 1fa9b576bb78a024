"""hanging-transaction: a transaction holds the last stable offset for longer than its timeout.

Neither Jepsen's kafka workload nor Adya has this class. It is Kafka's term (KIP-664). The coordinator aborts a
transaction that exceeds its timeout; until all brokers are reachable again, and for a while after a fault, it may not
be able to.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import RunningMax
from cordwood.chaos.checks.evidence import NS_PER_MS, Evidence
from cordwood.chaos.checks.unavailable import BOUNDS, NO_BOUND, NS_PER_S
from cordwood.chaos.history import UNKNOWN, Column

LATE_NS = 5 * NS_PER_S
"""The time for which a transaction may be open beyond its timeout."""
UNBOUND_S = 15
"""The time after a fault that has no bound."""
OFFSET_BITS = 44


def hanging_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers whose last stable offset is the record of an overdue transaction.

    The operations of a case are the transaction, the send at the last stable offset, and the answer.
    """
    history, facts = evidence.history, evidence.transactions
    watermarks, sends, transactions = history.watermarks, history.sends, history.transactions
    known = np.flatnonzero((sends.transaction >= 0) & (evidence.landed != UNKNOWN))
    if not len(known):
        return
    places = sends.partition[known] << OFFSET_BITS | evidence.landed[known]
    known, places = known[np.argsort(places, kind="stable")], np.sort(places)
    is_held = (watermarks.last_stable != UNKNOWN) & (watermarks.last_stable < watermarks.high_watermark)
    rows = np.flatnonzero(is_held)
    wanted = watermarks.partition[rows] << OFFSET_BITS | watermarks.last_stable[rows]
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    rows, send_of = rows[places[at] == wanted], known[at[places[at] == wanted]]
    held_by = sends.transaction[send_of]
    at_ns = evidence.bound_until(watermarks.partition, watermarks.leader_epoch, watermarks.invoked_ns)[rows]
    timeout_ns = history.sessions.timeout_ms[transactions.session[held_by]] * NS_PER_MS
    due_ns = np.maximum(transactions.began_ns[held_by] + timeout_ns, _undisturbed_ns(evidence, at_ns)) + LATE_NS
    overdue = np.flatnonzero(at_ns > due_ns)

    def proof(case: int) -> Proof:
        send = int(send_of[case])
        row = watermarks.operation(int(rows[case]))
        return facts.operation(int(held_by[case])), sends.operation(send), row

    sentence = "A transaction held the last stable offset for longer than its timeout"
    yield from accuse("hanging-transaction", sentence, overdue, proof)


def _undisturbed_ns(evidence: Evidence, at_ns: Column) -> Column:
    """Return, by time, when the faults that struck before it no longer have an effect."""
    faults = evidence.history.faults
    bounds_s = np.array([*(bound.seconds for bound in BOUNDS.values()), UNBOUND_S])
    assert NO_BOUND == -1, "the last bound is that of faults without one"
    over_ns = np.maximum(faults.until_ns, faults.since_ns) + (bounds_s[faults.kind] * NS_PER_S).astype(np.int64)
    zeros = np.zeros(len(faults), np.int64)
    return RunningMax(zeros, faults.since_ns, over_ns).before(np.zeros(len(at_ns), np.int64), at_ns)
