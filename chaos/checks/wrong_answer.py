"""Wrong answers of a leader to OffsetForLeaderEpoch, and to ListOffsets by time.

wrong-epoch-end: an answer of OffsetForLeaderEpoch that contradicts the epochs of batches read before the request.

Neither Jepsen's kafka workload nor Adya has this class. With such an answer a consumer takes records that it has read
for truncated, or misses a truncation (KIP-320).

wrong-lookup: ListOffsets by time returns a record that is not the first at or after that time, or none.

Neither Jepsen's kafka workload nor Adya has this class. A lookup by time is a predicate read in Adya's terms: the
answer misses a matching version, or returns one that does not match.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import NOTHING, Bools, Rows, RunningMax
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column


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


def wrong_lookups(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers that skip a record, name a record that is too old, or deny one that was acknowledged.

    The operations of a case are a record that contradicts the answer, where one is known, and the answer.
    """
    lookups, sends = evidence.history.lookups, evidence.history.sends
    if not len(lookups):
        return
    is_there = evidence.landed >= np.maximum(evidence.log_start[sends.partition], 0)
    records = np.flatnonzero(is_there & (sends.timestamp != UNKNOWN))
    partition, offset, timestamp = sends.partition[records], evidence.landed[records], sends.timestamp[records]
    is_named = lookups.offset != UNKNOWN
    is_passed_over = RunningMax(partition, offset, timestamp).before(lookups.partition, lookups.offset)
    at_offset = _at(lookups.partition, lookups.offset, partition, offset, timestamp)
    is_old = (lookups.timestamp < lookups.wanted) | ((at_offset != NOTHING) & (at_offset != lookups.timestamp))
    acknowledged = evidence.is_acknowledged[records]
    known = records[acknowledged]
    latest = RunningMax(sends.partition[known], sends.ended_ns[known], sends.timestamp[known])
    until = evidence.bound_until(lookups.partition, lookups.leader_epoch, lookups.invoked_ns)
    is_denied = ~is_named & (latest.before(lookups.partition, until) >= lookups.wanted)
    is_wrong: Bools = is_denied | (is_named & (is_old | (is_passed_over >= lookups.wanted)))

    def proof(row: int) -> Proof:
        is_meant = (partition == lookups.partition[row]) & (timestamp >= lookups.wanted[row])
        if is_named[row]:
            is_meant &= offset < lookups.offset[row]
        found = np.flatnonzero(is_meant)[:1]
        return *(sends.operation(int(records[each])) for each in found), lookups.operation(row)

    sentence = "A lookup by time did not name the first record of that time"
    yield from accuse("wrong-lookup", sentence, np.flatnonzero(is_wrong), proof)


def _at(partition: Column, offset: Column, of_partition: Column, of_offset: Column, number: Column) -> Column:
    """Return, by row, the number at that place, from rows of (partition, offset, number); NOTHING if there is none."""
    found = np.full(len(partition), NOTHING, np.int64)
    for each in np.unique(partition):
        own, rows = np.flatnonzero(of_partition == each), np.flatnonzero(partition == each)
        own = own[np.argsort(of_offset[own], kind="stable")]
        places = np.searchsorted(of_offset[own], offset[rows])
        is_known = places < len(own)
        rows, places = rows[is_known], own[places[is_known]]
        is_same = of_offset[places] == offset[rows]
        found[rows[is_same]] = number[places[is_same]]
    return found
