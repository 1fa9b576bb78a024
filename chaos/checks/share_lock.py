"""double-acquisition: two deliveries of a share group hold one record at a time.

Neither Jepsen's queue workloads nor Adya have this class. It is the violation of mutual exclusion that Jepsen's lock
workloads look for, with the lock of each record in the place of theirs. A lock that has ended, and one of a session
that may have ended, excludes no member, and a new leader has no locks.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.evidence import Evidence


def double_acquisitions(evidence: Evidence) -> Iterator[Anomaly]:
    """Find deliveries that were answered while an earlier one held the record. The operations are both deliveries."""
    acquisitions, shares = evidence.history.acquisitions, evidence.shares
    earlier, later = shares.successions
    row, next_row = shares.deliveries.row[earlier], shares.deliveries.row[later]
    candidates = np.flatnonzero(acquisitions.at_ns[next_row] < shares.alive_ns[row])
    earlier, later, row, next_row = earlier[candidates], later[candidates], row[candidates], next_row[candidates]
    is_held = acquisitions.at_ns[next_row] < shares.held_until_ns(earlier, later)
    is_held &= shares.has_one_leader(row, next_row)
    sentence = "A share group delivered a record while another delivery held it"
    yield from accuse_pairs("double-acquisition", sentence, acquisitions, row[is_held], next_row[is_held])
