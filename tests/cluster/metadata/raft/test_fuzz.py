"""Random faults in a quorum: committed commands stay, all voters agree, and the quorum recovers once faults end."""

import pytest

from cordwood.chaos.sim.quorum_scenario import run_quorum_scenario


@pytest.mark.parametrize("seed", range(12))
def test_voters_in_trouble(seed: int) -> None:
    run_quorum_scenario(seed)
