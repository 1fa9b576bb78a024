"""A group over real replicas: whatever happens to its coordinators, committed offsets never go back (rule 10)."""

import pytest

from cordwood.chaos.sim.group_scenario import group_story


@pytest.mark.parametrize("seed", range(15))
def test_a_group_in_trouble(seed: int) -> None:
    group_story(seed)
