"""What the stories of a group begin with."""

import pytest
from group_scenario import GroupScenario


@pytest.fixture
def group() -> GroupScenario:
    """An empty group whose rebalances begin at once."""
    return GroupScenario()
