"""Whatever happens to a quorum, what it acknowledged stays, everybody agrees, and it works again once all is well."""

import pytest

from cordwood.chaos.sim.quorum_scenario import quorum_story


@pytest.mark.parametrize("seed", range(25))
def test_voters_in_trouble(seed: int) -> None:
    quorum_story(seed)
