"""Alternating leaders: each one that returns truncates the records that only it has, and follows (KIP-279)."""

import pytest

from cordwood.chaos.sim.turns_scenario import run_turns_scenario


@pytest.mark.parametrize("seed", range(8))
def test_leaders_that_take_turns_agree_in_the_end(seed: int) -> None:
    assert run_turns_scenario(seed) > 0
