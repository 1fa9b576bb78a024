"""wrong-epoch-end: an answer of OffsetForLeaderEpoch that contradicts the epochs of batches read before the request.

Neither Jepsen's kafka workload nor Adya has this class. With such an answer a consumer takes records that it has read
for truncated, or misses a truncation (KIP-320).
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import NOTHING, Rows, RunningMax
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import Column


def wrong_epoch_ends(evidence: Evidence) -> Iterator[Anomaly]:
    """Find wrong answers of OffsetForLeaderEpoch.

    The operations of a case are a batch that contradicts the answer, where known, and the answer. A batch contradicts
    an answer if it is on the wrong side of the end, or of a later epoch than the answer's.
    """
    ends, batches = evidence.history.epoch_ends, evidence.history.batches
    until = evidence.bound_until(ends.partition, ends.leader_epoch, ends.invoked_ns)
    wrong: list[Rows] = [np.flatnonzero(ends.epoch > ends.wanted)]
    for partition in np.unique(ends.partition):
        answers = np.flatnonzero(ends.partition == partition)
        seen = np.flatnonzero((batches.partition == partition) & (batches.base >= evidence.log_start[partition]))
        for wanted in np.unique(ends.wanted[answers]):
            rows = answers[ends.wanted[answers] == wanted]
            is_older = batches.leader_epoch[seen] <= wanted
            older, younger = seen[is_older], seen[~is_older]
            end = _largest(evidence, older, batches.end, until[rows])
            base = _largest(evidence, younger, -batches.base, until[rows])
            epoch = _largest(evidence, older, batches.leader_epoch, until[rows])
            is_wrong = (ends.end[rows] < end) | (ends.epoch[rows] < epoch)
            is_wrong |= (base != NOTHING) & (-ends.end[rows] < base)
            wrong.append(rows[is_wrong])

    def proof(row: int) -> Proof:
        is_seen = (batches.partition == ends.partition[row]) & (batches.at_ns < until[row])
        is_older = batches.leader_epoch <= ends.wanted[row]
        is_against = np.where(
            is_older,
            (batches.end > ends.end[row]) | (batches.leader_epoch > ends.epoch[row]),
            batches.base < ends.end[row],
        )
        found = np.flatnonzero(is_seen & is_against)[:1]
        return *(batches.operation(int(each)) for each in found), ends.operation(row)

    rows = np.unique(np.concatenate(wrong))
    yield from accuse("wrong-epoch-end", "A leader named a wrong end of a leader epoch", rows, proof)


def _largest(evidence: Evidence, rows: Rows, number: Column, until: Column) -> Column:
    """Return, by answer, the largest number of these batches of one partition that had been read by that time."""
    batches = evidence.history.batches
    zeros = np.zeros_like(until)
    return RunningMax(np.zeros(len(rows), np.int64), batches.at_ns[rows], number[rows]).before(zeros, until)
