"""group-regress: a committed group offset goes back within a generation, or is read lower than it was committed."""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import Commits, Outcome

Place = tuple[int, int, int]
"""Group, partition and committed offset."""


def group_regresses(evidence: Evidence) -> Iterator[Anomaly]:
    """A case is a commit or a read, and the next one that is lower.

    A generation begins only when commits of the one before are refused, so what it reads includes all of them.
    A commit of unknown outcome may land late, behind those that its generation made after it.
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
    """The last generation that may still have committed an offset, without anybody being told."""
    generations: dict[Place, int] = {}
    for row in np.flatnonzero(commits.outcome == Outcome.INFO):
        place, generation = _place(commits, row), int(commits.generation[row])
        generations[place] = max(generation, generations.get(place, generation))
    return generations


def _place(commits: Commits, row: np.intp) -> Place:
    return int(commits.group[row]), int(commits.partition[row]), int(commits.offset[row])
