"""The fixture of the group tests."""

import pytest
from group_scenario import GroupScenario


@pytest.fixture
def group() -> GroupScenario:
    """Return an empty group whose rebalances start immediately."""
    return GroupScenario()
