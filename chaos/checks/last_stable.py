"""wrong-last-stable: a last stable offset that is not the high watermark, although there are no transactions.

Neither Jepsen's kafka workload nor Adya has this class. With transactions, a last stable offset that is too high would
appear as G1a, and one that is too low as `unseen`.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


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
