"""aborted-read (G1a): a value is read whose send definitely failed."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence
from cordwood.chaos.history import Outcome


def aborted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is a poll; its operations are the send and the poll."""
    sends, polls, owner = evidence.history.sends, evidence.history.polls, evidence.polled_sends
    known = np.flatnonzero(owner != NO_SEND)
    rows = known[sends.outcome[owner[known]] == Outcome.FAIL]
    yield from accuse(
        "aborted-read",
        "A value was read whose send had failed",
        rows,
        lambda row: (sends.operation(int(owner[row])), polls.operation(row)),
    )
