"""group-regress: a committed offset that decreases within a generation, or is fetched lower than it was committed.

Neither Jepsen's kafka workload nor Adya has this class. The nearest class is a violation of monotonic reads, a session
guarantee (Terry et al., 1994), with the consumer group as the session.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import Commits, Outcome

Place = tuple[int, int, int]
"""Group, partition and committed offset."""


def group_regresses(evidence: Evidence) -> Iterator[Anomaly]:
    """Find commits and fetches that are lower than the one before. The operations of a case are the two.

    A generation begins only once commits of the generation before are refused, so that its fetches include all of them.
    A commit of unknown outcome may take effect late, after later commits of its generation.
    """
    commits = evidence.history.commits
    known = np.flatnonzero(commits.outcome == Outcome.OK)
    known = known[np.argsort(commits.generation[known], kind="stable")]
    earlier, later = (known[rows] for rows in consecutive(commits.group[known], commits.partition[known]))
    is_bound = (commits.is_read[later] == 1) | (commits.generation[later] == commits.generation[earlier])
    goes_back = np.flatnonzero(is_bound & (commits.offset[later] < commits.offset[earlier]))
    open_until = _generations_of_open_commits(commits)
    cases = [
        case
        for case in goes_back.tolist()
        if open_until.get(_place(commits, later[case]), -1) < commits.generation[earlier[case]]
    ]
    yield from accuse_pairs(
        "group-regress",
        "A group's committed offset went back",
        commits,
        earlier[cases],
        later[cases],
    )


def _generations_of_open_commits(commits: Commits) -> dict[Place, int]:
    """Return the last generation that may have committed each offset with unknown outcome."""
    generations: dict[Place, int] = {}
    for row in np.flatnonzero(commits.outcome == Outcome.INFO):
        place, generation = _place(commits, row), int(commits.generation[row])
        generations[place] = max(generation, generations.get(place, generation))
    return generations


def _place(commits: Commits, row: np.intp) -> Place:
    return int(commits.group[row]), int(commits.partition[row]), int(commits.offset[row])
