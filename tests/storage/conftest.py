"""What the stories of a log begin with."""

import pytest
from log_fixture import LogFixture


@pytest.fixture
def log() -> LogFixture:
    """An empty log whose segments hold some ten short batches."""
    return LogFixture()
