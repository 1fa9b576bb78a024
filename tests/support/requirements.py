"""Machine requirements of tests, a pytest plugin: a missing one skips, or fails where `CORDWOOD_REQUIRE` names it.

With `CORDWOOD_REQUIRE=docker,kcat` a test without Docker or kcat fails instead of being skipped, so that CI cannot pass
by skipping.
"""

import os
from collections.abc import Mapping
from enum import StrEnum

import pytest

VARIABLE = "CORDWOOD_REQUIRE"


class Requirement(StrEnum):
    """A tool or machine property that a test needs besides the packages of the `dev` extra."""

    AIO = "aio"
    CC = "cc"
    CHROMIUM = "chromium"
    DOCKER = "docker"
    GO = "go"
    HISTORY = "history"
    KCAT = "kcat"
    LONG_TESTS = "long-tests"
    MAVEN = "maven"
    NETWORK = "network"
    PROMTOOL = "promtool"
    PTRACE = "ptrace"
    ROOT = "root"
    TMPFS = "tmpfs"


def required(environment: Mapping[str, str] = os.environ) -> frozenset[Requirement]:
    """Return the requirements that `CORDWOOD_REQUIRE` names. Raises UsageError for an unknown word."""
    words = [word.strip() for word in environment.get(VARIABLE, "").split(",")]
    try:
        return frozenset(Requirement(word) for word in words if word)
    except ValueError as error:
        raise pytest.UsageError(f"{VARIABLE}: {error}; known are {', '.join(Requirement)}") from None


def needs(requirement: Requirement, is_met: bool, reason: str) -> pytest.MarkDecorator:
    """Mark tests that need `requirement`. `reason` explains what is missing if it is not met."""
    return pytest.mark.needs(requirement, is_met, reason)


def check(requirement: Requirement, is_met: bool, reason: str) -> None:
    """Skip the running test if `requirement` is not met; fail it if `CORDWOOD_REQUIRE` names the requirement."""
    if is_met:
        return
    if requirement in required():
        pytest.fail(f"{VARIABLE} has {requirement}: {reason}", pytrace=False)
    pytest.skip(f"{requirement}: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker. An unknown requirement ends the run with an error message."""
    config.addinivalue_line("markers", "needs(requirement, is_met, reason): what the test needs of the machine")
    required()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the requirements of a marked test before its fixtures."""
    for mark in item.iter_markers("needs"):
        check(*mark.args)
