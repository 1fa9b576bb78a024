"""Fixtures of the storage tests."""

import pytest
from log_fixture import LogFixture


@pytest.fixture
def log() -> LogFixture:
    """Return an empty log whose segments hold about ten short batches."""
    return LogFixture()
