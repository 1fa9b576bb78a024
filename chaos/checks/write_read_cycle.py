"""G1c: a cycle of write-read edges between transactions.

Adya's G1c (circular information flow), in the form of Jepsen's kafka workload with read_committed: a transaction
consumes a record only after the transaction of that record was committed. Write-write edges do not count, because Kafka
does not isolate writes.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import Rows
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column


def write_read_cycles(evidence: Evidence) -> Iterator[Anomaly]:
    """Find transactions in a cycle, or between two cycles. The operation of a case is the transaction."""
    writer, reader = _edges(evidence)
    count = len(evidence.history.transactions)
    while len(writer):
        # A transaction that consumed from none that is left, or that none consumed from, is in no cycle.
        has_writer, has_reader = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        has_writer[reader], has_reader[writer] = True, True
        goes_on = has_writer[writer] & has_reader[reader]
        if goes_on.all():
            break
        writer, reader = writer[goes_on], reader[goes_on]

    def proof(transaction: int) -> Proof:
        return (evidence.transactions.operation(transaction),)

    yield from accuse("G1c", "Transactions have consumed each other's records in a cycle", np.unique(writer), proof)


def _edges(evidence: Evidence) -> tuple[Column | Rows, Column | Rows]:
    """Return pairs of transactions, of which the second has consumed a record of the first."""
    sends, offsets, landed = evidence.history.sends, evidence.history.transaction_offsets, evidence.landed
    known = np.flatnonzero((sends.transaction >= 0) & (landed != UNKNOWN))
    writers, readers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for partition in np.unique(offsets.partition):
        rows = known[sends.partition[known] == partition]
        rows = rows[np.argsort(landed[rows], kind="stable")]
        inputs = np.flatnonzero(offsets.partition == partition)
        first, last = (np.searchsorted(landed[rows], bound[inputs]) for bound in (offsets.begin, offsets.end))
        for place, row in enumerate(inputs):
            found = np.unique(sends.transaction[rows[first[place] : last[place]]])
            found = found[found != offsets.transaction[row]]
            writers.append(found)
            readers.append(np.full(len(found), offsets.transaction[row]))
    return np.concatenate(writers), np.concatenate(readers)
