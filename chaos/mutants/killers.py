"""Killers: for each mutant, the test file that fails on it, or the simulated scenario and seeds that do.

Killers are pinned in killers.json, so that a weaker suite or simulator is noticed: a mutant whose killer no longer
fails has survived, even if something else would fail. `cordwood chaos mutants --pin` searches for killers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cordwood.chaos.mutants.mutant import Scenario

PINNED = Path(__file__).resolve().parent / "killers.json"
ROOT = PINNED.parents[2]
"""The source tree, to which the paths of test files are relative."""
BUDGET_OF_FIRST = 3
"""A scenario's seed budget, as a multiple of the seed that first caught the mutant."""


@dataclass(frozen=True, slots=True)
class PytestFile:
    """A file below tests/ that fails on the mutant."""

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Seeds:
    """A simulated scenario that fails on the mutant with one of the seeds 1 to `budget`."""

    scenario: Scenario
    budget: int

    def __str__(self) -> str:
        return f"{self.scenario} 1..{self.budget}"


Killer = PytestFile | Seeds


def parsed(text: str) -> Killer:
    """Parse the text form of a killer. Raises ValueError."""
    if text.endswith(".py"):
        return PytestFile(text)
    scenario, _, budget = text.partition(" 1..")
    return Seeds(Scenario(scenario), int(budget))


def pinned() -> dict[str, Killer]:
    """Return the killers of killers.json, by the mutant's name."""
    return {name: parsed(text) for name, text in json.loads(PINNED.read_text()).items()}


def pin(killers: Mapping[str, Killer]) -> None:
    """Write killers.json."""
    rows = {name: str(killers[name]) for name in sorted(killers)}
    PINNED.write_text(json.dumps(rows, indent=1) + "\n")
