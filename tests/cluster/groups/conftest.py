"""What the stories of a group begin with."""

import pytest
from group_story import GroupStory


@pytest.fixture
def group() -> GroupStory:
    """An empty group whose rebalances begin at once."""
    return GroupStory()
