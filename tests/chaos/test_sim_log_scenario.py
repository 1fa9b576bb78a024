"""The random scenario of one log: seeds that once found a bug, and others."""

import pytest

from cordwood.chaos.sim.log_scenario import run_log_scenario

SEEDS_WITH_A_STORY = {
    1: "a log that was to start over, and died of it, came back without its beginning",
    2: "an index stayed after its segment, and matched the next one of the same name",
    20: "batches were appended before a truncation was on disk: a power cut left some of the old ones among the new",
    22: "a segment that was released with an interval open could not be appended to again",
    29: "such a mixture of old and new batches was called damaged",
    39: "the flush mark of a truncated log was not noted: a torn batch after it was called damaged",
}


@pytest.mark.parametrize("seed", range(40))
def test_a_log_is_opened_as_it_was(seed: int) -> None:
    assert run_log_scenario(seed) > 0, SEEDS_WITH_A_STORY.get(seed)
