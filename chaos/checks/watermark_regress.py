"""watermark-regress: the high watermark of a partition goes back, as one client observes it.

Neither Jepsen's kafka workload nor Adya has this class. The class violates monotonic reads, a session guarantee (Terry
et al., 1994), with the client as the session.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import BY_FOLLOWER, UNKNOWN


def watermark_regresses(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive answers with a lower high watermark. The operations of a case are the two answers."""
    watermarks = evidence.history.watermarks
    told = np.flatnonzero((watermarks.high_watermark != UNKNOWN) & (watermarks.leader_epoch != BY_FOLLOWER))
    earlier, later = (told[rows] for rows in consecutive(watermarks.client[told], watermarks.partition[told]))
    goes_back = watermarks.high_watermark[later] < watermarks.high_watermark[earlier]
    yield from accuse_pairs(
        "watermark-regress",
        "A client saw the high watermark go back",
        watermarks,
        earlier[goes_back],
        later[goes_back],
    )
