"""unseen: acknowledged, and never polled by the end: lost from the tail, or not shown."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


def unseen(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is a send above everything that was read of its partition, or of unknown place. Nobody else's to claim:
    what is below is a lost write, and a partition without consumers has nobody to see it."""
    sends, landed = evidence.history.sends, evidence.landed
    start = evidence.log_start[sends.partition]
    is_to_come = landed > np.maximum(evidence.highest_polled[sends.partition], start - 1)
    # A send of unknown place may be among what was deleted, unless nothing was.
    is_nowhere = (landed == UNKNOWN) & (start == 0)
    is_unseen = evidence.is_acknowledged & ~evidence.is_polled & evidence.has_consumer[sends.partition]
    rows = np.flatnonzero(is_unseen & (is_to_come | is_nowhere))
    yield from accuse(
        "unseen",
        "A send was acknowledged, and no consumer was given it by the end",
        rows,
        lambda row: (sends.operation(row),),
    )
