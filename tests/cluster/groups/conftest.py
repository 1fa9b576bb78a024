"""What the stories of a group begin with."""

import pytest
from group_scenario import GroupStory


@pytest.fixture
def group() -> GroupStory:
    """An empty group whose rebalances begin at once."""
    return GroupStory()
