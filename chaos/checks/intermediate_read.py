"""intermediate-read: read_committed shows a part of a transaction, and passes over another part.

Adya's G1b is a read of a version that its transaction replaced later; Jepsen's kafka workload, in which each write
stays, takes it for a read of some and not all of a transaction's records. Such a transaction is both committed and
aborted: its markers differ between partitions, or between two replicas of one partition.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence


def intermediate_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find transactions of which a part was passed over.

    The operations of a case are the transaction, a poll of one of its records, and a send that was passed over.
    """
    history, facts = evidence.history, evidence.transactions
    missed = facts.missed_sends[facts.has_seen_part[facts.of_sends[facts.missed_sends]]]

    def proof(transaction: int) -> Proof:
        send = int(missed[facts.of_sends[missed] == transaction][0])
        return facts.operation(transaction), *facts.seen_of(transaction), history.sends.operation(send)

    torn = np.unique(facts.of_sends[missed])
    yield from accuse("intermediate-read", "read_committed showed a part of a transaction", torn, proof)
