"""early-read: a read_committed consumer receives a record before the commit of its transaction was asked for.

The class is that of Jepsen's `early-read` workload for Bufstream: cycles of write-read edges alone showed that clients
polled records of transactions that were not committed yet. With a clock that all clients share, one read is enough.
"""

from collections.abc import Iterator

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence


def early_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find polls before the first EndTxn. The operations of a case are the transaction, the send and the poll."""
    history, facts = evidence.history, evidence.transactions
    transactions, of_polls = history.transactions, facts.of_polls
    is_early = history.polls.polled_ns[facts.polls] < transactions.end_invoked_ns[of_polls]
    rows = facts.polls[is_early & ~facts.is_never_committed[of_polls]]

    def proof(row: int) -> Proof:
        send = int(evidence.polled_sends[row])
        transaction = facts.operation(int(facts.of_sends[send]))
        return transaction, history.sends.operation(send), history.polls.operation(row)

    yield from accuse("early-read", "read_committed showed a record before its transaction was ended", rows, proof)
