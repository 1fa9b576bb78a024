"""The committed budget of each scenario: load, comparison with new counts, and save.

Counters of the interpreter's work differ from one Python to the next, so each measured Python has its own figure.
System calls and the bytes that they move are the same everywhere.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).resolve().parent / "budget.json"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
HOW_TO_WRITE = "python -m cordwood.bench.counters --write"

OF_THE_INTERPRETER = ("Python calls", "C calls", "bytes allocated", "bytes in large blocks", "large blocks")
INTERPRETER_SHARE = 0.03
"""The tolerated excess of the interpreter's counters: they may differ a little between patch releases."""
EXACT_SHARE, EXACT = 0.001, 0.05
"""The tolerated excess of all other counters: only timers may add to a request now and then."""
MEMORY_BYTES = 256
"""The tolerated excess of memory: a table may happen to grow within the counted requests."""
FALLEN_SHARE = 0.10

Counts = Mapping[str, float]
Budget = dict[str, dict[str, float | dict[str, float]]]
"""By scenario, then by counter: a number, or numbers by Python version."""


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A counter that differs from the budget."""

    scenario: str
    counter: str
    budget: float
    now: float

    def __str__(self) -> str:
        share = f" ({self.now / self.budget - 1:+.1%})" if self.budget else ""
        return f"{self.scenario}: {self.counter} went from {self.budget:,.2f} to {self.now:,.2f}{share}"

    @property
    def complaint(self) -> str:
        """The message for a counter that exceeds its budget."""
        return (
            f"{self}. Make it cheaper again; or, if it is worth its price, write the new budget with "
            f"`{HOW_TO_WRITE}` and say in the commit's message why it costs more."
        )


def load(path: Path = PATH) -> Budget:
    found: Budget = json.loads(path.read_text())
    return found


def exceeded(scenario: str, counts: Counts, budget: Budget, python: str = PYTHON) -> list[CounterChange]:
    """Return the counters that exceed their budget. A system call that is not in the budget has a budget of 0."""
    return [change for change in _changes(scenario, counts, budget, python) if change.now > _allowed(change)]


def fallen(scenario: str, counts: Counts, budget: Budget, python: str = PYTHON) -> list[CounterChange]:
    """Return the counters so far below their budget that the budget should be lowered."""
    changes = _changes(scenario, counts, budget, python)
    return [change for change in changes if change.now < change.budget * (1 - FALLEN_SHARE) - EXACT]


def is_measured(budget: Budget, python: str = PYTHON) -> bool:
    """Return whether the interpreter's counters have a budget for this Python. Without one they are not compared."""
    return any(
        python in known for counters in budget.values() for known in counters.values() if isinstance(known, dict)
    )


def with_counts(budget: Budget, scenario: str, counts: Counts, python: str = PYTHON) -> Budget:
    """Return the budget with these counts for the scenario; other Pythons keep their figures."""
    before = budget.get(scenario, {})
    after: dict[str, float | dict[str, float]] = {}
    for counter in sorted({*counts, *(name for name in OF_THE_INTERPRETER if name in before)}):
        now = round(counts.get(counter, 0.0), 3)
        if counter in OF_THE_INTERPRETER:
            known = before.get(counter, {})
            after[counter] = {**(known if isinstance(known, dict) else {}), python: now}
        elif now:
            after[counter] = now
    return {**budget, scenario: after}


def save(budget: Budget, path: Path = PATH) -> None:
    path.write_text(json.dumps(budget, indent=2) + "\n")


def _changes(scenario: str, counts: Counts, budget: Budget, python: str) -> Iterator[CounterChange]:
    known = budget.get(scenario, {})
    is_known_python = is_measured(budget, python)
    for counter in sorted({*counts, *known}):
        allowed = known.get(counter, 0.0)
        if counter in OF_THE_INTERPRETER:
            if not is_known_python:
                continue
            allowed = allowed.get(python, 0.0) if isinstance(allowed, dict) else 0.0
        assert isinstance(allowed, int | float), f"{scenario}: {counter} has one figure for all Pythons"
        yield CounterChange(scenario, counter, allowed, counts.get(counter, 0.0))


def _allowed(change: CounterChange) -> float:
    if change.counter not in OF_THE_INTERPRETER:
        return change.budget + max(EXACT, change.budget * EXACT_SHARE)
    least = MEMORY_BYTES if change.counter.startswith("bytes") else EXACT
    return change.budget + max(least, change.budget * INTERPRETER_SHARE)
