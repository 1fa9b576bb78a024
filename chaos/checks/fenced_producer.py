"""fenced-producer: a producer writes or commits after a later one with its transactional id has begun.

The class belongs to Jepsen's `producer-fence` workload for Bufstream, which looks for producers that are fenced without
a successor. This is its contrary: InitProducerId of the successor has succeeded, so it has fenced the producer.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column

NEVER_NS = np.iinfo(np.int64).max


def fenced_commits(evidence: Evidence) -> Iterator[Anomaly]:
    """Find commits of fenced producers. The operations of a case are the successor's session and the transaction."""
    history, facts = evidence.history, evidence.transactions
    successor = _successors(evidence)
    transactions, sessions = history.transactions, history.sessions
    fenced_ns = _fenced_ns(evidence, successor)[transactions.session]
    is_late = facts.is_committed & (transactions.end_invoked_ns > fenced_ns)

    def proof(transaction: int) -> Proof:
        session = int(transactions.session[transaction])
        return sessions.operation(int(successor[session])), facts.operation(transaction)

    yield from accuse("fenced-producer", "A fenced producer has committed", np.flatnonzero(is_late), proof)


def fenced_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """Find sends of fenced producers. The operations of a case are the successor's session and the send."""
    history = evidence.history
    sends, sessions, successor = history.sends, history.sessions, _successors(evidence)
    rows = np.flatnonzero(evidence.is_acknowledged & (sends.transaction >= 0))
    session = history.transactions.session[sends.transaction[rows]]
    rows = rows[sends.invoked_ns[rows] > _fenced_ns(evidence, successor)[session]]

    def proof(send: int) -> Proof:
        of_send = int(history.transactions.session[sends.transaction[send]])
        return sessions.operation(int(successor[of_send])), sends.operation(send)

    yield from accuse("fenced-producer", "A fenced producer has written", rows, proof)


def _successors(evidence: Evidence) -> Column:
    """Return, by session, the first that was asked for after its begin and has begun itself; UNKNOWN for none."""
    sessions = evidence.history.sessions
    successor = np.full(len(sessions), UNKNOWN, np.int64)
    began = np.flatnonzero(sessions.began_ns != UNKNOWN)
    for session in began:
        is_later = sessions.transactional_id[began] == sessions.transactional_id[session]
        later = began[is_later & (sessions.invoked_ns[began] > sessions.began_ns[session])]
        if len(later):
            successor[session] = later[np.argmin(sessions.began_ns[later])]
    return successor


def _fenced_ns(evidence: Evidence, successor: Column) -> Column:
    """Return, by session, the time at which its successor has begun; NEVER_NS without one."""
    if not len(successor):
        return successor
    return np.where(successor == UNKNOWN, NEVER_NS, evidence.history.sessions.began_ns[successor])
