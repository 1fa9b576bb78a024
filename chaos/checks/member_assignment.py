"""Assignments of the consumer protocol (KIP-848).

- double-assignment: a partition is two members' at the same time.
- member-epoch-regress: a member gets a lower epoch than before, also after it has joined again.

Neither Jepsen's kafka workload nor Adya has these classes. The first is the violation of mutual exclusion that Jepsen's
lock workloads look for, with each partition as a lock; the second violates monotonic reads (Terry et al., 1994).
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import Rows, consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.checks.share_evidence import UNSETTLED_NS
from cordwood.chaos.history import UNKNOWN


def double_assignments(evidence: Evidence) -> Iterator[Anomaly]:
    """Find ownerships of one partition that overlap. The operations of a case are the two ownerships.

    A coordinator that was deposed and does not know it may confirm what its successor has taken away. So the two count
    only if one coordinator confirmed both, or, where that is not known, if no fault was near.
    """
    owned = evidence.history.ownerships
    order = np.argsort(owned.since_ns, kind="stable")
    pairs: list[tuple[int, int]] = []
    open_until: dict[tuple[int, int], list[int]] = {}
    for row in order.tolist():
        place = int(owned.group[row]), int(owned.partition[row])
        held = [other for other in open_until.get(place, ()) if owned.until_ns[other] > owned.since_ns[row]]
        if owned.until_ns[row] > owned.since_ns[row]:
            pairs += (
                (other, row)
                for other in held
                if owned.member[other] != owned.member[row] and _is_one_coordinator(evidence, other, row)
            )
            held.append(row)
        open_until[place] = held
    earlier, later = _columns(pairs)
    sentence = "A partition was two members' of a group at the same time"
    yield from accuse_pairs("double-assignment", sentence, owned, earlier, later)


def _is_one_coordinator(evidence: Evidence, earlier: int, later: int) -> bool:
    owned, faults = evidence.history.ownerships, evidence.history.faults
    coordinators = owned.coordinator[earlier], owned.coordinator[later]
    if coordinators[0] != UNKNOWN:
        return bool(coordinators[0] == coordinators[1])
    begin, end = owned.since_ns[earlier], owned.since_ns[later]
    near = (faults.since_ns <= end) & (faults.until_ns + UNSETTLED_NS >= begin)
    return not near.any() and coordinators[1] == UNKNOWN


def member_epoch_regresses(evidence: Evidence) -> Iterator[Anomaly]:
    """Find consecutive answers to one member of which the later has the lower epoch. The operations are the two."""
    epochs = evidence.history.member_epochs
    earlier, later = consecutive(epochs.group, epochs.member)
    goes_back = epochs.epoch[later] < epochs.epoch[earlier]
    sentence = "A member of a group got a lower epoch than before"
    yield from accuse_pairs("member-epoch-regress", sentence, epochs, earlier[goes_back], later[goes_back])


def _columns(pairs: list[tuple[int, int]]) -> tuple[Rows, Rows]:
    earlier, later = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(earlier, np.intp), np.array(later, np.intp)
