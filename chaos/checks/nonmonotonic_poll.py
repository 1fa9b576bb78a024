"""nonmonotonic-poll: a consumer that was not reassigned receives the same record again, or an earlier one.

The class is `nonmonotonic-poll` of Jepsen's kafka workload. Adya has no such class, because Adya's classes do not order
the reads of one session.
"""

from collections.abc import Iterator

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.evidence import Evidence


def nonmonotonic_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive polls that do not advance. The operations of a case are the two polls."""
    polls = evidence.history.polls
    earlier, later = evidence.irregular_polls
    goes_back = polls.offset[later] <= polls.offset[earlier]
    yield from accuse_pairs(
        "nonmonotonic-poll",
        "A consumer got a record, and then one that is not after it",
        polls,
        earlier[goes_back],
        later[goes_back],
    )
