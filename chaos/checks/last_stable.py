"""wrong-last-stable: a leader's last stable offset is not its high watermark, though there are no transactions."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


def wrong_last_stables(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is an answer."""
    watermarks = evidence.history.watermarks
    is_told = (watermarks.last_stable != UNKNOWN) & (watermarks.high_watermark != UNKNOWN)
    yield from accuse(
        "wrong-last-stable",
        "A last stable offset differed from the high watermark",
        np.flatnonzero(is_told & (watermarks.last_stable != watermarks.high_watermark)),
        lambda row: (watermarks.operation(row),),
    )
