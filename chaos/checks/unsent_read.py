"""unsent-read: a value that no producer sent to that partition: corrupted, misplaced or invented.

Adya's model excludes such a read, because each read returns a version that was written. Elle, Jepsen's transaction
checker, calls the class a garbage read.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence


def unsent_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find polls without a send. The operation of a case is the poll."""
    rows = np.flatnonzero(evidence.polled_sends == NO_SEND)
    yield from accuse(
        "unsent-read",
        "A value was read that no producer sent to that partition",
        rows,
        lambda row: (evidence.history.polls.operation(row),),
    )
