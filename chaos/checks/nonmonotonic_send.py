"""nonmonotonic-send: a later send of one producer has a lower or equal offset in the partition.

The class is `nonmonotonic-send` of Jepsen's kafka workload. Adya has no such class, because Adya's classes do not order
the writes of one session.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


def nonmonotonic_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive acknowledged sends out of order. Other sends may be appended at any later time."""
    sends, landed = evidence.history.sends, evidence.landed
    known = np.flatnonzero(evidence.is_acknowledged & (landed != UNKNOWN))
    earlier, later = (known[rows] for rows in consecutive(sends.producer[known], sends.partition[known]))
    goes_back = landed[later] <= landed[earlier]
    yield from accuse_pairs(
        "nonmonotonic-send",
        "A producer's later send landed at a lower or equal offset",
        sends,
        earlier[goes_back],
        later[goes_back],
    )
