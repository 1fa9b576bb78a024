"""altered-read: a value is read with another key, other headers, or another timestamp than it was sent with."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence
from cordwood.chaos.history import UNKNOWN


def altered_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is a poll; its operations are the send and the poll."""
    sends, polls, owner = evidence.history.sends, evidence.history.polls, evidence.polled_sends
    known = np.flatnonzero((owner != NO_SEND) & (polls.content != UNKNOWN))
    sent = sends.content[owner[known]]
    yield from accuse(
        "altered-read",
        "A record was read with another key, other headers or another timestamp than it was sent with",
        known[(sent != UNKNOWN) & (sent != polls.content[known])],
        lambda row: (sends.operation(int(owner[row])), polls.operation(row)),
    )
