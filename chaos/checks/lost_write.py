"""Acknowledged records that are lost, or that no consumer receives.

lost-write: a record that was acknowledged or read, and is skipped by all polls or missing from a replica at the end.

The class is `lost-write` of Jepsen's kafka workload, extended to replica logs. Adya has no such class, because Adya's
classes describe isolation and not durability.

unseen: a record that was acknowledged and never polled by the end, because it is lost from the tail or not served.

The class is `unseen` of Jepsen's kafka workload. Adya has no such class, because Adya's classes describe isolation and
neither durability nor progress.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import Rows, per_partition
from cordwood.chaos.checks.evidence import NO_SEND, Evidence
from cordwood.chaos.history import UNKNOWN


def lost_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """Find acknowledged sends at or below the highest offset read that no poll received.

    The operations of a case are the send, and the poll with the highest offset.
    """
    sends, polls, landed = evidence.history.sends, evidence.history.polls, evidence.landed
    is_passed = (landed <= evidence.highest_polled[sends.partition]) & (landed >= evidence.log_start[sends.partition])
    lost = np.flatnonzero(evidence.is_acknowledged & ~evidence.is_polled & (landed != UNKNOWN) & is_passed)

    def passed(send: int) -> Proof:
        partition = sends.partition[send]
        is_highest = (polls.partition == partition) & (polls.offset == evidence.highest_polled[partition])
        return sends.operation(send), polls.operation(int(np.flatnonzero(is_highest)[0]))

    yield from accuse("lost-write", "A send was acknowledged, and reads passed over it", lost, passed)


def lost_from_replicas(evidence: Evidence) -> Iterator[Anomaly]:
    """Find sends that were acknowledged or polled and are not at their offset in a replica that was in sync.

    The operations of a case are the send, a poll of its record, and the log of the replica.
    """
    for broker in evidence.brokers:
        yield from _lost_from(evidence, broker)


def _lost_from(evidence: Evidence, broker: int) -> Iterator[Anomaly]:
    sends, logs = evidence.history.sends, evidence.history.logs
    own = np.flatnonzero(logs.broker == broker)
    log_of, start = per_partition(evidence.partitions, -1), per_partition(evidence.partitions, 0)
    log_of[logs.partition[own]], start[logs.partition[own]] = own, logs.log_start[own]
    # A send of unknown offset may have been deleted, unless the log still starts at 0.
    place = np.where(evidence.landed == UNKNOWN, 0, evidence.landed)
    is_due = (log_of[sends.partition] >= 0) & (place >= start[sends.partition])
    is_committed = evidence.is_acknowledged | evidence.is_polled
    is_held = np.zeros(len(sends), np.bool_)
    is_held[_sends_in_place(evidence, broker)] = True
    yield from accuse(
        "lost-write",
        f"A send was acknowledged or read, and is not in its place on broker {broker}",
        np.flatnonzero(is_committed & is_due & ~is_held),
        lambda send: (
            sends.operation(send),
            *evidence.poll_of(send),
            logs.operation(int(log_of[sends.partition[send]])),
        ),
    )


def _sends_in_place(evidence: Evidence, broker: int) -> Rows:
    """Return the sends that a broker holds at their offset, or at any offset where theirs is unknown."""
    replicas = evidence.history.replicas
    rows = np.flatnonzero((replicas.broker == broker) & (evidence.replicated_sends != NO_SEND))
    found = evidence.replicated_sends[rows].astype(np.intp)
    landed = evidence.landed[found]
    in_place: Rows = found[(landed == UNKNOWN) | (landed == replicas.offset[rows])]
    return in_place


def unseen(evidence: Evidence) -> Iterator[Anomaly]:
    """Find acknowledged sends above all polled offsets of their partition, or of unknown offset.

    A missing record below the highest polled offset is a `lost-write`. A partition without consumers is not checked.
    """
    sends, landed = evidence.history.sends, evidence.landed
    start = evidence.log_start[sends.partition]
    is_to_come = landed > np.maximum(evidence.highest_polled[sends.partition], start - 1)
    # A send of unknown offset may have been deleted, unless nothing was.
    is_nowhere = (landed == UNKNOWN) & (start == 0)
    is_unseen = evidence.is_acknowledged & ~evidence.is_polled & evidence.has_consumer[sends.partition]
    rows = np.flatnonzero(is_unseen & (is_to_come | is_nowhere))
    yield from accuse(
        "unseen",
        "A send was acknowledged, and no consumer was given it by the end",
        rows,
        lambda row: (sends.operation(row),),
    )
