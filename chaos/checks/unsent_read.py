"""unsent-read: a value is read that no producer sent to that partition: damaged, misplaced or made up."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence


def unsent_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is a poll."""
    rows = np.flatnonzero(evidence.polled_sends == NO_SEND)
    yield from accuse(
        "unsent-read",
        "A value was read that no producer sent to that partition",
        rows,
        lambda row: (evidence.history.polls.operation(row),),
    )
