"""The random scenario of one log: seeds that once found a bug, and others."""

import pytest

from cordwood.chaos.sim.log_scenario import run_log_scenario

SEEDS_WITH_A_STORY = {
    0: "a log that was to begin anew, and died of it, had records of the one log and leader epochs of the other",
    3: "a log that began anew died between two files, and had leader epochs of the log before it",
    5: "a log that was removed whole died of it, and counted as lost",
    17: "the flush mark of a log that began anew came before its checkpoint: records that never were counted as lost",
}


@pytest.mark.parametrize("seed", range(40))
def test_a_log_is_opened_as_it_was(seed: int) -> None:
    assert run_log_scenario(seed) > 0, SEEDS_WITH_A_STORY.get(seed)
