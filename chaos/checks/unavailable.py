"""unavailable: a send waits longer for its acknowledgement than the bound of the last fault allows.

Neither Jepsen's kafka workload nor Adya has this class. Their classes are violations of safety; this class is a
violation of bounded liveness.

Only a fault that strikes a healthy cluster has a bound, until the next fault strikes. The bounds hold for the sessions
of simulated brokers (`broker.session.timeout.ms` 2 s), and for clients with a request timeout of 5 s.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import NOTHING, Rows
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import ACKS_ALL, Outcome

NS_PER_S = 1_000_000_000
NO_BOUND = -1


class Bound(NamedTuple):
    """The longest allowed wait of a send, counted from the fault or from its end, or from the send if that is later."""

    seconds: float
    is_from_end: bool
    why: str


BOUNDS = {
    "kill": Bound(
        3, False, "The brokers notice at once that connections end, and elect others: no session has to end."
    ),
    "restart": Bound(3, False, "Its partitions are led by others before it ends."),
    "die-in-write": Bound(12, False, "As a kill or a power cut, up to 30 writes later."),
    "reset": Bound(3, False, "Everybody connects again."),
    "clock-jump": Bound(3, False, "No timeout is measured by the time of day."),
    "power-cut": Bound(
        12, False, "Connections end in silence: 2 s until the broker is fenced, 5 s until clients time out."
    ),
    "pause": Bound(12, False, "As a power cut, with connections that take what is sent."),
    "cut-off": Bound(12, True, "As a power cut; but a leader that keeps its clients is asked again and again."),
    "cut-one-way": Bound(12, True, "A broker whose heartbeats arrive is not fenced, though it may hear no other."),
    "cut-clients": Bound(
        12, True, "A client that cannot reach the leader waits for the network; then 5 s for its answer."
    ),
    "slow-link": Bound(12, True, "What is on its way when the line is fast again still arrives in order."),
    "slow-disk": Bound(
        12, True, "What the disk has begun it ends at its old speed; the in-sync set shrinks meanwhile."
    ),
    "disk-full": Bound(12, True, "Sends are refused until there is room, or until another broker leads."),
    "blackout": Bound(15, True, "All are down; then logs are recovered, and the quorum has to be formed again."),
    "sync-error": Bound(12, False, "The log directory is offline, the process ends, and others lead."),
    "bit-flip": Bound(12, False, "A leader that finds damage resigns; clients get an error at once."),
    "wipe": Bound(5, False, "As a kill."),
    "write-error": Bound(12, False, "The log directory is offline, and others lead its partitions."),
    **dict.fromkeys(
        ("file-missing", "file-shortened", "file-zeroed", "read-error"), Bound(12, False, "As a flipped bit.")
    ),
    "end-lost": Bound(12, False, "As a kill; the broker that starts without its end leads nothing before it has it."),
}
"""Bounds by fault name. A fault that is not listed has no bound."""
NUMBERS = {name: number for number, name in enumerate(BOUNDS)}
"""The numbers of the faults in a history."""


def number_of(fault: str) -> int:
    """Return the number of a fault in a history; NO_BOUND for a fault without a bound."""
    return NUMBERS.get(fault, NO_BOUND)


def unavailables(evidence: Evidence) -> Iterator[Anomaly]:
    """Find overdue sends. The operations of a case are the fault and the send."""
    sends, faults = evidence.history.sends, evidence.history.faults
    by_time = np.argsort(faults.since_ns, kind="stable")
    bounds = list(BOUNDS.values())
    fault_of = np.full(len(sends), NOTHING, np.int64)
    for place, fault in enumerate(by_time.tolist()):
        if faults.kind[fault] != NO_BOUND and faults.is_alone[fault]:
            after = by_time[place + 1 :]
            next_ns = int(faults.since_ns[after].min()) if len(after) else np.iinfo(np.int64).max
            fault_of[_overdue(evidence, fault, bounds[int(faults.kind[fault])], next_ns)] = fault

    def proof(send: int) -> Proof:
        return faults.operation(int(fault_of[send])), sends.operation(send)

    names = ", ".join(sorted({[*BOUNDS][int(faults.kind[fault])] for fault in fault_of[fault_of != NOTHING]}))
    sentence = f"A send waited longer for its acknowledgement than is expected ({names})"
    yield from accuse("unavailable", sentence, np.flatnonzero(fault_of != NOTHING), proof)


def _overdue(evidence: Evidence, fault: int, bound: Bound, next_ns: int) -> Rows:
    """Return the sends that were not acknowledged in time. A send that its producer dropped has no bound."""
    sends, faults = evidence.history.sends, evidence.history.faults
    origin_ns = int(faults.until_ns[fault] if bound.is_from_end else faults.since_ns[fault])
    due_ns = np.maximum(sends.invoked_ns, origin_ns) + int(bound.seconds * NS_PER_S)
    is_open = (sends.outcome == Outcome.INFO) & (sends.ended_ns < 0) & (due_ns < evidence.last_ns)
    is_late = (sends.outcome == Outcome.OK) & (sends.ended_ns > due_ns)
    is_bound = (sends.acks == ACKS_ALL) & (sends.invoked_ns < next_ns) & (due_ns < next_ns)
    overdue: Rows = np.flatnonzero((is_open | is_late) & is_bound)
    return overdue
