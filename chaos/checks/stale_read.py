"""stale-read (real-time order): a leader's log end lies below what a client knew to be committed before it asked.

Allowances: a follower may lag (KIP-392). A deposed leader that has not learned of its successor answers with the
offsets of its own time. An acknowledgement with acks=1 proves no commit. Without transactions both isolation levels
have the same end.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column, EpochEnds, Watermarks


def stale_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is an answer of Fetch or ListOffsets; its operations are what was known, and the answer."""
    watermarks = evidence.history.watermarks
    yield from _accused(evidence, watermarks, watermarks.high_watermark)


def stale_epoch_ends(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is an answer about the end of the epoch in which the leader leads, which is the end of its log."""
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

    yield from accuse("stale-read", "A leader told an end below what was known to be committed", rows, proof)
