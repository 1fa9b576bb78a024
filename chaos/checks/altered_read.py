"""altered-read: a record that was read with another key, other headers or another timestamp than it was sent with.

Jepsen's kafka workload has no such class, because it compares values only. The nearest class is the garbage read of
Elle, Jepsen's transaction checker: a read of a version that no client wrote, which Adya's model excludes.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence
from cordwood.chaos.history import UNKNOWN


def altered_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find polls with altered content. The operations of a case are the send and the poll."""
    sends, polls, owner = evidence.history.sends, evidence.history.polls, evidence.polled_sends
    known = np.flatnonzero((owner != NO_SEND) & (polls.content != UNKNOWN))
    sent = sends.content[owner[known]]
    yield from accuse(
        "altered-read",
        "A record was read with another key, other headers or another timestamp than it was sent with",
        known[(sent != UNKNOWN) & (sent != polls.content[known])],
        lambda row: (sends.operation(int(owner[row])), polls.operation(row)),
    )
