"""One offset for each value, and one value at each offset.

duplicate: one value at more than one offset, over all polls and acknowledged sends.

The class is `duplicate` of Jepsen's kafka workload. Adya has no such class: in Adya's model a write creates one version
at one place of the version order.

inconsistent-offsets: two values at one offset of a partition, over all polls and acknowledged sends.

The class is `inconsistent-offsets` of Jepsen's kafka workload. Adya has no such class: Adya's model assumes one total
order of the versions of an object.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.columns import NOTHING
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


def inconsistent_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """Find offsets with two values. The operations of a case are two that disagree."""
    sends, polls, placed = evidence.history.sends, evidence.history.polls, evidence.placed
    sent_at = evidence.places.numbers(sends.partition[placed], sends.offset[placed])
    polled_at = evidence.places.numbers(polls.partition, polls.offset)
    sent = sends.value[placed]
    value_at = np.full(evidence.places.count, NOTHING, np.int64)
    value_at[polled_at] = polls.value
    value_at[sent_at] = sent
    is_contested = np.zeros(evidence.places.count, np.bool_)
    is_contested[sent_at[value_at[sent_at] != sent]] = True
    is_contested[polled_at[value_at[polled_at] != polls.value]] = True

    def claims(place: int) -> Proof:
        by_value = {int(sent[row]): sends.operation(int(placed[row])) for row in np.flatnonzero(sent_at == place)}
        for row in np.flatnonzero(polled_at == place):
            by_value.setdefault(int(polls.value[row]), polls.operation(int(row)))
        return tuple(by_value.values())[:2]

    yield from accuse(
        "inconsistent-offsets",
        "One offset of a partition has two values",
        np.flatnonzero(is_contested),
        claims,
    )
