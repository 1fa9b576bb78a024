"""Search for a mutant's killer: the test files near the changed file, then the mutant's scenarios."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.chaos.mutants.hunt import ChildFailed, Hunt, MutantOutcome, MutantVerdict
from cordwood.chaos.mutants.killers import BUDGET_OF_FIRST, ROOT, Killer, Seeds
from cordwood.chaos.mutants.mutant import Mutant, Scenario

NEAR: Mapping[str, Sequence[str]] = {
    "storage": ("storage",),
    "replication": ("replication", "storage"),
    "cluster/metadata": ("cluster/metadata", "cluster"),
    "cluster/coordination": ("cluster/groups", "cluster/transactions"),
    "cluster/groups": ("cluster/groups",),
    "cluster/transactions": ("cluster/transactions",),
    "cluster/kafka": ("cluster/kafka", "cluster"),
    "cluster": ("cluster", "replication"),
    "archive": ("archive",),
    "columnar": ("columnar", "spark"),
    "spark": ("spark",),
}
"""The folders below tests/ to try for a folder of the source, the nearest first."""
SLOW_BYTES = 20_000
SEEDS_MAX = 100


async def search(hunt: Hunt, mutant: Mutant) -> tuple[Killer, MutantOutcome] | None:
    """Return a killer with its seed budget, and its outcome; None where none was found. Raises Stale."""
    for find in (_in_tests, _in_scenarios):
        outcome = await find(hunt, mutant)
        if outcome is not None and outcome.verdict is MutantVerdict.CAUGHT:
            killer = outcome.killer
            assert killer is not None, "it caught the mutant"
            if isinstance(killer, Seeds):
                killer = replace(killer, budget=BUDGET_OF_FIRST * outcome.seed)
            return killer, outcome
    return None


async def _in_tests(hunt: Hunt, mutant: Mutant) -> MutantOutcome | None:
    for folder in NEAR[_folder(mutant.file)]:
        try:
            outcome = await hunt.tested(mutant, candidates(mutant.file, folder))
        except (ChildFailed, TimeoutError):
            continue
        if outcome.verdict is MutantVerdict.CAUGHT:
            return outcome
    return None


async def _in_scenarios(hunt: Hunt, mutant: Mutant) -> MutantOutcome | None:
    outcome = None
    for scenario in dict.fromkeys((mutant.scenario, Scenario.BROKERS)):
        outcome = await hunt.run_scenario(mutant, Seeds(scenario, SEEDS_MAX))
        if outcome.verdict is MutantVerdict.CAUGHT:
            return outcome
    return outcome


def candidates(file: str, folder: str) -> list[str]:
    """Return the test files of a folder below tests/: those named after `file` first, then by size."""
    stem = Path(file).stem

    def distance(path: Path) -> float:
        size = path.stat().st_size
        return 0 if stem in path.stem else size if size < SLOW_BYTES else math.inf

    place = ROOT / "tests" / folder
    found = place.glob("test_*.py") if folder == "cluster" else place.rglob("test_*.py")
    return [path.relative_to(ROOT).as_posix() for path in sorted(found, key=distance)]


def _folder(file: str) -> str:
    return max((folder for folder in NEAR if file.startswith(f"{folder}/")), key=len)
