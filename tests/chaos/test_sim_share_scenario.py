"""The scenario of one share partition: it finds nothing on the real states."""

from cordwood.chaos.sim.share_scenario import run_share_scenario


def test_a_share_partition_keeps_its_promises_through_failovers_and_lost_writes() -> None:
    for seed in range(1, 41):
        assert run_share_scenario(seed) > 10
