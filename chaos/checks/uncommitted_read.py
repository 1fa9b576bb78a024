"""uncommitted-read (dirty read): a consumer receives records above the high watermark.

The nearest class of Jepsen's kafka workload is `precommitted-read`, a read of a transaction's own uncommitted sends. In
Adya's model the read becomes G1a (aborted read) if the record is never committed.

Most such records are committed a moment later, so that no other checker detects them.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN


def uncommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find answers whose records end above their own high watermark, or above that of every leader so far."""
    watermarks = evidence.history.watermarks
    is_beyond_its_own = (watermarks.high_watermark != UNKNOWN) & (watermarks.read_end > watermarks.high_watermark)
    is_beyond_all = (watermarks.leaders_end != UNKNOWN) & (watermarks.read_end > watermarks.leaders_end)
    yield from accuse(
        "uncommitted-read",
        "A consumer was given records above the high watermark",
        np.flatnonzero(is_beyond_its_own | is_beyond_all),
        lambda row: (watermarks.operation(row),),
    )
