"""Garbage reads, in Elle's term: values and contents that no producer sent.

unsent-read: a value that no producer sent to that partition: corrupted, misplaced or invented.

Adya's model excludes such a read, because each read returns a version that was written. Elle, Jepsen's transaction
checker, calls the class a garbage read.

altered-read: a record that was read with another key, other headers or another timestamp than it was sent with.

Jepsen's kafka workload has no such class, because it compares values only. The nearest class is the garbage read of
Elle, Jepsen's transaction checker: a read of a version that no client wrote, which Adya's model excludes.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.evidence import NO_SEND, Evidence
from cordwood.chaos.history import UNKNOWN


def unsent_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find polls without a send. The operation of a case is the poll."""
    rows = np.flatnonzero(evidence.polled_sends == NO_SEND)
    yield from accuse(
        "unsent-read",
        "A value was read that no producer sent to that partition",
        rows,
        lambda row: (evidence.history.polls.operation(row),),
    )


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
