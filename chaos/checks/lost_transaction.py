"""lost-transaction: a transaction was acknowledged as committed, and read_committed or its group does not show it.

The class is `lost-write` of Jepsen's kafka workload, for all records of a transaction, or for its offset. A transaction
of which a part is shown is an `intermediate-read`.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import NOTHING, RunningMax
from cordwood.chaos.checks.evidence import Evidence


def lost_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """Find committed transactions that reads passed over. The operations are the transaction, and one of its sends."""
    history, facts = evidence.history, evidence.transactions
    of_missed = facts.of_sends[facts.missed_sends]
    is_lost = facts.is_committed[of_missed] & ~facts.has_seen_part[of_missed]

    def proof(transaction: int) -> Proof:
        send = int(facts.missed_sends[of_missed == transaction][0])
        return facts.operation(transaction), history.sends.operation(send)

    sentence = "A transaction was committed, and reads passed over its records"
    yield from accuse("lost-transaction", sentence, np.unique(of_missed[is_lost]), proof)


def lost_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """Find fetched offsets below one that was committed before the request. The operations are both."""
    history, facts = evidence.history, evidence.transactions
    reads, offsets, transactions = history.offset_reads, history.transaction_offsets, history.transactions
    committed = np.flatnonzero(facts.is_committed[offsets.transaction])
    if not len(reads):
        return
    span = 1 + int(max(offsets.partition.max(initial=0), reads.partition.max()))
    place, read_place = offsets.group * span + offsets.partition, reads.group * span + reads.partition
    ended_ns = transactions.ended_ns[offsets.transaction]
    due = RunningMax(place[committed], ended_ns[committed], offsets.end[committed]).before(read_place, reads.invoked_ns)

    def proof(read: int) -> Proof:
        is_due = (place[committed] == read_place[read]) & (offsets.end[committed] > reads.offset[read])
        before = committed[is_due & (ended_ns[committed] < reads.invoked_ns[read])]
        return offsets.operation(int(before[0])), reads.operation(read)

    sentence = "A transaction was committed with a group's offset, and the group had a lower one afterwards"
    yield from accuse("lost-transaction", sentence, np.flatnonzero((due != NOTHING) & (reads.offset < due)), proof)
