"""unseen: a record that was acknowledged and never polled by the end, because it is lost from the tail or not served.

The class is `unseen` of Jepsen's kafka workload. Adya has no such class, because Adya's classes describe isolation and
neither durability nor progress.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


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
