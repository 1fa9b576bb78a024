"""duplicate: one value at more than one offset, over all polls and acknowledged sends.

The class is `duplicate` of Jepsen's kafka workload. Adya has no such class: in Adya's model a write creates one version
at one place of the version order.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence


def duplicates(evidence: Evidence) -> Iterator[Anomaly]:
    """Find sends whose record has two offsets. All producers are idempotent, or send nothing twice.

    The operations of a case are the send, and polls at two of its offsets, or at one that differs from the acknowledged
    offset.
    """
    sends, polls, owner = evidence.history.sends, evidence.history.polls, evidence.polled_sends
    known = np.flatnonzero(owner != NO_SEND)
    elsewhere = known[polls.offset[known] != evidence.landed[owner[known]]]
    is_repeated = np.zeros(len(sends), np.bool_)
    is_repeated[owner[elsewhere]] = True

    def places(send: int) -> Proof:
        rows = np.flatnonzero(owner == send)
        _, first = np.unique(polls.offset[rows], return_index=True)
        return sends.operation(send), *(polls.operation(int(row)) for row in rows[first[:2]])

    yield from accuse(
        "duplicate",
        "One value is at two offsets of its partition",
        np.flatnonzero(is_repeated),
        places,
    )
