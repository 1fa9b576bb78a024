"""nonmonotonic-poll: a consumer that was not reassigned is given the same record again, or an earlier one."""

from collections.abc import Iterator

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.evidence import Evidence


def nonmonotonic_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is two consecutive polls."""
    polls = evidence.history.polls
    earlier, later = evidence.irregular_polls
    goes_back = polls.offset[later] <= polls.offset[earlier]
    yield from accuse_pairs(
        "nonmonotonic-poll",
        "A consumer was given a record, and then one that is not behind it",
        polls,
        earlier[goes_back],
        later[goes_back],
    )
