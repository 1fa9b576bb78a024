"""A cluster that the previous release has founded, under load."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from previous_release import previous_python
from rolling_cluster import Load, RollingCluster


@pytest.fixture(scope="session")
def previous() -> str:
    """Return the Python of the previous release."""
    return previous_python()


@pytest.fixture
def cluster(tmp_path: Path, previous: str) -> Iterator[RollingCluster]:
    """Yield a cluster of the previous release."""
    rolling = RollingCluster(tmp_path / "cluster")
    try:
        rolling.start(previous)
        yield rolling
    finally:
        rolling.end()


@pytest.fixture
def load(cluster: RollingCluster) -> Iterator[Load]:
    """Yield clients that write and read during the test."""
    clients = Load(cluster.bootstrap)
    yield clients
    clients.close()
