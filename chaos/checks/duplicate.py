"""duplicate: one value at more than one offset, over all polls and acknowledged sends."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence


def duplicates(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is a send; its operations are the send, and polls at two of its places, or at the one it was not told.

    Producers are idempotent, or send nothing twice.
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
