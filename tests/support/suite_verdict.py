"""The verdict on a foreign test suite: its outcomes, compared with the list of allowed failures."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Outcomes = dict[str, str]
"""Outcomes, "passed", "failed" or "skipped", by test id."""

GO_OUTCOMES = {"run": "failed", "pass": "passed", "fail": "failed", "skip": "skipped"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Test ids by category."""

    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    allowed: tuple[str, ...]
    broken: tuple[str, ...]
    """Failures that are not on the list."""
    passing: tuple[str, ...]
    """Entries of the list that passed."""
    vanished: tuple[str, ...]
    """Entries of the list that the suite does not have."""


def allowed_failures(text: str) -> dict[str, str]:
    """Return reasons by test id, from lines of `test id, blanks, reason`. Raises ValueError if a reason is missing."""
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
    """Judge the outcomes, "passed", "failed" or "skipped" by test id."""
    failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
    passed = tuple(test for test, outcome in outcomes.items() if outcome == "passed")
    return Verdict(
        passed=passed,
        skipped=tuple(test for test, outcome in outcomes.items() if outcome == "skipped"),
        allowed=tuple(test for test in failed if test in allowed),
        broken=tuple(test for test in failed if test not in allowed),
        passing=tuple(test for test in allowed if test in passed),
        vanished=tuple(test for test in allowed if test not in outcomes),
    )


def go_outcomes(lines: Iterable[str]) -> Outcomes:
    """Return outcomes from the lines of `go tool test2json`. A test that begins and does not end has failed."""
    events = [json.loads(line) for line in lines]
    tests = [event for event in events if "Test" in event and event["Action"] in GO_OUTCOMES]
    return {event["Test"]: GO_OUTCOMES[event["Action"]] for event in tests}


def librdkafka_outcome(text: str, number: str, exit_code: int | None) -> str:
    """Return the outcome of a number of librdkafka's tests, whose runner has printed `text`.

    The runner says that all tests have passed if the only one was skipped. A number may have several tests, some of
    which are skipped in one of the group protocols.
    """
    outcomes = re.findall(rf"{number}_\w+ +\| +(PASSED|SKIPPED)", text)
    return "failed" if exit_code != 0 else "passed" if "PASSED" in outcomes else "skipped"
