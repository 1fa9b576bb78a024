"""Dirty reads: records that are not committed, or whose send failed.

uncommitted-read (dirty read): a consumer receives records above the high watermark.

The nearest class of Jepsen's kafka workload is `precommitted-read`, a read of a transaction's own uncommitted sends. In
Adya's model the read becomes G1a (aborted read) if the record is never committed.

Most such records are committed a moment later, so that no other checker detects them.

aborted-read: a record that was read, or is committed on a replica, although its send definitely failed.

The class is G1a of Jepsen's kafka workload, which takes the name from Adya. In Adya's model, a committed transaction
reads a version that an aborted transaction wrote.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import Bools, Rows
from cordwood.chaos.checks.evidence import NO_SEND, Evidence, SendRows
from cordwood.chaos.history import UNKNOWN, Outcome, Table


def uncommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers whose records end above their own high watermark, or above that of every leader so far."""
    watermarks = evidence.history.watermarks
    is_beyond_its_own = (watermarks.high_watermark != UNKNOWN) & (watermarks.read_end > watermarks.high_watermark)
    is_beyond_all = (watermarks.leaders_end != UNKNOWN) & (watermarks.read_end > watermarks.leaders_end)
    yield from accuse(
        "uncommitted-read",
        "A consumer was given records above the high watermark",
        np.flatnonzero(is_beyond_its_own | is_beyond_all),
        lambda row: (watermarks.operation(row),),
    )


def aborted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find polls of failed sends. The operations of a case are the send and the poll."""
    history, owner = evidence.history, evidence.polled_sends
    sentence = "A value was read whose send had failed"
    yield from _accused(evidence, sentence, history.polls, owner, _refused(evidence, owner))


def aborted_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """Find failed sends that are committed on a replica that was in sync at the end, whether consumed or not.

    The operations of a case are the send and the record of the replica.
    """
    history, owner = evidence.history, evidence.replicated_sends
    rows = _refused(evidence, owner)
    sentence = "A replica holds a value whose send had failed"
    yield from _accused(evidence, sentence, history.replicas, owner, rows[_is_committed(evidence, rows)])


def _refused(evidence: Evidence, owner: SendRows) -> Rows:
    """Return the rows whose record belongs to a failed send."""
    known = np.flatnonzero(owner != NO_SEND)
    refused: Rows = known[evidence.history.sends.outcome[owner[known]] == Outcome.FAIL]
    return refused


def _is_committed(evidence: Evidence, rows: Rows) -> Bools:
    """Return which of these replica records are below the high watermark of their replica."""
    logs, replicas = evidence.history.logs, evidence.history.replicas
    watermark = {
        (int(broker), int(partition)): int(end)
        for broker, partition, end in zip(logs.broker, logs.partition, logs.high_watermark, strict=True)
    }
    ends = [watermark.get((int(replicas.broker[row]), int(replicas.partition[row])), 0) for row in rows]
    is_committed: Bools = replicas.offset[rows] < np.array(ends, np.int64)
    return is_committed


def _accused(evidence: Evidence, sentence: str, table: Table, owner: SendRows, rows: Rows) -> Iterator[Anomaly]:
    def proof(row: int) -> Proof:
        return evidence.history.sends.operation(int(owner[row])), table.operation(row)

    yield from accuse("aborted-read", sentence, rows, proof)
