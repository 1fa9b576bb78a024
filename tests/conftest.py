"""Configuration of all tests: the package importable only as `cordwood`, a Hypothesis profile, and a broker fixture."""

import gc
import importlib.util
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
FLAT_NAMES = ("storage", "replication", "cluster", "chaos", "bench", "spark", "client", "columnar", "archive")

# `python -m pytest` puts the working directory on the path, and with it our folders under their flat names.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

for _flat in FLAT_NAMES:
    _spec = importlib.util.find_spec(_flat)
    assert _spec is None or ROOT / _flat not in map(Path, _spec.submodule_search_locations or []), (
        f"`import {_flat}` finds our package: only `import cordwood.{_flat}` may"
    )

from broker_fixture import RunningBroker  # noqa: E402

pytest_plugins = ["requirements", "results_log", "longest_first", "fast", "unit_coverage"]

# Each run has the same examples, and none fails on a slow machine; `--hypothesis-profile default` searches for others.
hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what collection makes, 600,000 objects, out of all garbage collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Yield a one-node broker with an empty data directory, on a port of its own."""
    running = RunningBroker(tmp_path / "data")
    running.start()
    try:
        yield running
    finally:
        running.stop()
