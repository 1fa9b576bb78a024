"""A consumer group over real replicas with coordinator faults: committed offsets never go back (rule 10)."""

import pytest

from cordwood.chaos.sim.group_scenario import run_group_scenario


@pytest.mark.parametrize("seed", range(15))
def test_a_group_in_trouble(seed: int) -> None:
    run_group_scenario(seed)
