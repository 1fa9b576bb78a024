"""uncommitted-read (a dirty read, Adya's G1b for a log): a consumer is given what no leader had committed.

Most such records are committed a moment later, so that no other check misses them.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


def uncommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is an answer: its records go beyond its own high watermark, or beyond those of all leaders until then."""
    watermarks = evidence.history.watermarks
    is_beyond_its_own = (watermarks.high_watermark != UNKNOWN) & (watermarks.read_end > watermarks.high_watermark)
    is_beyond_all = (watermarks.leaders_end != UNKNOWN) & (watermarks.read_end > watermarks.leaders_end)
    yield from accuse(
        "uncommitted-read",
        "A consumer was given records above the high watermark",
        np.flatnonzero(is_beyond_its_own | is_beyond_all),
        lambda row: (watermarks.operation(row),),
    )
