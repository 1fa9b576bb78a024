"""Leaders that take turns: whoever comes back gives up what only it has, and goes on."""

import pytest

from cordwood.chaos.sim.turns_scenario import turns_story


@pytest.mark.parametrize("seed", range(8))
def test_leaders_that_take_turns_agree_in_the_end(seed: int) -> None:
    assert turns_story(seed) > 0
