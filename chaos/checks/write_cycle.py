"""G0: a cycle of write-write and real-time edges between transactions, over the highest offsets.

Adya's G0 (write cycle) in the form of Jepsen's kafka workload, `G0-realtime`: a transaction that began after another
had ended has written below it. Cycles of write-write edges between concurrent transactions are normal: Kafka does not
isolate writes.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.checks.fenced_producer import NEVER_NS
from cordwood.chaos.history import UNKNOWN, Column, Outcome


def write_cycles(evidence: Evidence) -> Iterator[Anomaly]:
    """Find transactions below earlier ones. The operations of a case are the earlier transaction and the later one."""
    facts = evidence.transactions
    transactions = evidence.history.transactions
    pairs: dict[int, int] = {}
    for of_highest in _by_highest_offset(evidence):
        is_ended = transactions.outcome[of_highest] == Outcome.OK
        ended_ns = np.where(is_ended, transactions.ended_ns[of_highest], NEVER_NS)
        # By place: the earliest end of all transactions with a higher offset.
        first_end_ns = np.append(np.minimum.accumulate(ended_ns[::-1])[::-1][1:], NEVER_NS)
        for place in np.flatnonzero(first_end_ns < transactions.began_ns[of_highest]).tolist():
            above = place + 1 + int(np.argmin(ended_ns[place + 1 :]))
            pairs.setdefault(int(of_highest[place]), int(of_highest[above]))

    def proof(transaction: int) -> Proof:
        return facts.operation(pairs[transaction]), facts.operation(transaction)

    sentence = "A transaction began after another had ended, and wrote below it"
    yield from accuse("G0", sentence, np.array(sorted(pairs), np.intp), proof)


def _by_highest_offset(evidence: Evidence) -> Iterator[Column]:
    """Yield, for each partition, the transactions that wrote to it, in the order of their highest offsets."""
    sends, landed = evidence.history.sends, evidence.landed
    known = np.flatnonzero((sends.transaction >= 0) & (landed != UNKNOWN))
    for partition in np.unique(sends.partition[known]):
        rows = known[sends.partition[known] == partition]
        rows = rows[np.argsort(landed[rows], kind="stable")]
        # The last place of each transaction, in the order of places.
        _, last = np.unique(sends.transaction[rows][::-1], return_index=True)
        yield sends.transaction[rows[np.sort(len(rows) - 1 - last)]]
