"""Alternating leaders: each one that returns truncates the records that only it has, and follows (KIP-279)."""

import pytest

from cordwood.chaos.sim.turns_scenario import turns_story


@pytest.mark.parametrize("seed", range(8))
def test_leaders_that_take_turns_agree_in_the_end(seed: int) -> None:
    assert turns_story(seed) > 0
