"""Machine requirements of tests, a pytest plugin: a missing one skips, or fails where `CORDWOOD_REQUIRE` names it.

`CORDWOOD_REQUIRE=docker,kcat` makes a skip for want of Docker or kcat a failure, so that CI cannot pass by skipping.
"""

import os
from collections.abc import Mapping
from enum import StrEnum

import pytest

VARIABLE = "CORDWOOD_REQUIRE"


class Requirement(StrEnum):
    """What a test may need besides the packages of the `dev` extra."""

    AIO = "aio"
    CHROMIUM = "chromium"
    DOCKER = "docker"
    GO = "go"
    KCAT = "kcat"
    LONG_TESTS = "long-tests"
    MAVEN = "maven"
    PROMTOOL = "promtool"
    PTRACE = "ptrace"
    ROOT = "root"
    TMPFS = "tmpfs"


def required(environment: Mapping[str, str] = os.environ) -> frozenset[Requirement]:
    """Return the requirements that `CORDWOOD_REQUIRE` names. Raises UsageError for a word that is none of them."""
    words = [word.strip() for word in environment.get(VARIABLE, "").split(",")]
    try:
        return frozenset(Requirement(word) for word in words if word)
    except ValueError as error:
        raise pytest.UsageError(f"{VARIABLE}: {error}; known are {', '.join(Requirement)}") from None


def needs(requirement: Requirement, is_met: bool, reason: str) -> pytest.MarkDecorator:
    """Mark tests that need `requirement`. `reason` says what is missing if it is not met."""
    return pytest.mark.needs(requirement, is_met, reason)


def check(requirement: Requirement, is_met: bool, reason: str) -> None:
    """Skip the running test, or fail it if `requirement` is required, unless it is met."""
    if is_met:
        return
    if requirement in required():
        pytest.fail(f"{VARIABLE} has {requirement}: {reason}", pytrace=False)
    pytest.skip(f"{requirement}: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker. A word that is no requirement ends the run with a sentence."""
    config.addinivalue_line("markers", "needs(requirement, is_met, reason): what the test needs of the machine")
    required()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the requirements of a marked test before its fixtures."""
    for mark in item.iter_markers("needs"):
        check(*mark.args)
