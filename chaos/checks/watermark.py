"""High watermarks and last stable offsets in the answers to one client.

watermark-regress: the high watermark of a partition goes back, as one client observes it.

Neither Jepsen's kafka workload nor Adya has this class. The class violates monotonic reads, a session guarantee (Terry
et al., 1994), with the client as the session.

wrong-last-stable: a last stable offset that is not the high watermark, although there are no transactions.

Neither Jepsen's kafka workload nor Adya has this class. With transactions, a last stable offset that is too high would
appear as G1a, and one that is too low as `unseen`.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse, accuse_pairs
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


def wrong_last_stables(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers with a wrong last stable offset. The operation of a case is the answer."""
    watermarks = evidence.history.watermarks
    is_told = (watermarks.last_stable != UNKNOWN) & (watermarks.high_watermark != UNKNOWN)
    yield from accuse(
        "wrong-last-stable",
        "A last stable offset differed from the high watermark",
        np.flatnonzero(is_told & (watermarks.last_stable != watermarks.high_watermark)),
        lambda row: (watermarks.operation(row),),
    )
