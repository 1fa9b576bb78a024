"""aborted-read: a read_committed consumer, or a group's committed offset, shows a transaction that is not committed.

The class is `aborted-read`, G1a, of Jepsen's kafka workload, which takes the name from Adya. Its client has aborted the
transaction, has not requested a commit, or got a refusal of the commit.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column


def aborted_transaction_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find polls of uncommitted transactions. The operations of a case are the transaction, the send and the poll."""
    history, facts = evidence.history, evidence.transactions
    rows = facts.polls[facts.is_never_committed[facts.of_polls]]

    def proof(row: int) -> Proof:
        send = int(evidence.polled_sends[row])
        transaction = facts.operation(int(facts.of_sends[send]))
        return transaction, history.sends.operation(send), history.polls.operation(row)

    yield from accuse("aborted-read", "read_committed showed a record of an aborted transaction", rows, proof)


def aborted_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """Find offsets that only uncommitted transactions had sent. The operations are one of these, and the read."""
    reads, offsets, facts = evidence.history.offset_reads, evidence.history.transaction_offsets, evidence.transactions

    def senders(read: int) -> Column:
        is_same = (offsets.group == reads.group[read]) & (offsets.partition == reads.partition[read])
        found: Column = offsets.transaction[is_same & (offsets.end == reads.offset[read])]
        return found

    def is_aborted(read: int) -> bool:
        return len(senders(read)) > 0 and bool(facts.is_never_committed[senders(read)].all())

    known = np.flatnonzero(reads.offset != UNKNOWN)

    def proof(read: int) -> Proof:
        return facts.operation(int(senders(read)[0])), reads.operation(read)

    sentence = "A group has the offset of an aborted transaction"
    yield from accuse("aborted-read", sentence, known[[is_aborted(int(read)) for read in known]], proof)
