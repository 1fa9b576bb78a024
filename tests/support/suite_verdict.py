"""What the outcomes of a foreign suite and the list of allowed failures say together."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Tests by what they mean to us."""

    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    allowed: tuple[str, ...]
    broken: tuple[str, ...]
    """Failed, and not on the list."""
    mended: tuple[str, ...]
    """On the list, and passed."""
    vanished: tuple[str, ...]
    """On the list, and not in the suite."""


def allowed_failures(text: str) -> dict[str, str]:
    """Reason by test id, from lines of `test id, blanks, reason`. Raises ValueError for a line without a reason."""
    allowed: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        test, _, reason = line.partition(" ")
        if not reason.strip():
            raise ValueError(f"line {number} gives no reason for {test}")
        allowed[test] = reason.strip()
    return allowed


def judge(outcomes: Mapping[str, str], allowed: Mapping[str, str]) -> Verdict:
    """`outcomes` are "passed", "failed" or "skipped" by test id."""
    failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
    passed = tuple(test for test, outcome in outcomes.items() if outcome == "passed")
    return Verdict(
        passed=passed,
        skipped=tuple(test for test, outcome in outcomes.items() if outcome == "skipped"),
        allowed=tuple(test for test in failed if test in allowed),
        broken=tuple(test for test in failed if test not in allowed),
        mended=tuple(test for test in allowed if test in passed),
        vanished=tuple(test for test in allowed if test not in outcomes),
    )
