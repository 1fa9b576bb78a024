"""nonmonotonic-send: one producer's later send lands at a lower or equal offset of the partition."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


def nonmonotonic_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is two consecutive acknowledged sends. Others may land at any time, once their producer has given up."""
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
