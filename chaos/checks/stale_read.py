"""stale-read: a leader's log end is below an end that a client knew to be committed before the request.

The class violates real-time order (linearizability), which Adya's classes do not cover. Jepsen's kafka workload
measures such lag (`worst-realtime-lag`) without a class for it.

Allowances: a follower may lag (KIP-392). A deposed leader without the new metadata answers with the offsets of its own
time. An acknowledgement with acks=1 proves no commit. Without transactions both isolation levels have the same end.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column, EpochEnds, Watermarks


def stale_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find stale answers of Fetch and ListOffsets. The operations of a case are the prior knowledge and the answer."""
    watermarks = evidence.history.watermarks
    yield from _accused(evidence, watermarks, watermarks.high_watermark)


def stale_epoch_ends(evidence: Evidence) -> Iterator[Anomaly]:
    """Find stale answers of OffsetForLeaderEpoch about the leader's current epoch, whose end is the log end."""
    ends = evidence.history.epoch_ends
    yield from _accused(evidence, ends, np.where(ends.wanted == ends.leader_epoch, ends.end, UNKNOWN))


def _accused(evidence: Evidence, answers: Watermarks | EpochEnds, end: Column) -> Iterator[Anomaly]:
    if not (end != UNKNOWN).any():
        return
    partition = answers.partition
    until = evidence.bound_until(partition, answers.leader_epoch, answers.invoked_ns)
    rows = np.flatnonzero((end != UNKNOWN) & (end < evidence.known_end.before(partition, until)))

    def proof(row: int) -> Proof:
        return *evidence.known_before(int(partition[row]), int(until[row]), int(end[row])), answers.operation(row)

    yield from accuse(
        "stale-read", "A leader answered with an end below an offset that was known to be committed", rows, proof
    )
