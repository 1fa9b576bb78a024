"""What every test has: the package by its one name only, and a broker of its own for those that ask for one."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
FLAT_NAMES = ("storage", "replication", "cluster", "chaos", "bench", "spark")

# `python -m pytest` puts the working directory on the path, and with it our folders under their flat names.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

for _flat in FLAT_NAMES:
    _spec = importlib.util.find_spec(_flat)
    assert _spec is None or ROOT / _flat not in map(Path, _spec.submodule_search_locations or []), (
        f"`import {_flat}` finds our package: only `import cordwood.{_flat}` may"
    )

from broker_fixture import RunningBroker  # noqa: E402

pytest_plugins = ["requirements", "results_log", "longest_first", "fast"]

# The same examples in each run, however slow the machine is; `--hypothesis-profile default` looks for others.
hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker of one node with an empty data directory, on a port of its own."""
    running = RunningBroker(tmp_path / "data")
    running.start()
    try:
        yield running
    finally:
        running.stop()
