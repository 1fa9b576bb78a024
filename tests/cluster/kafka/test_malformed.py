"""A running broker under thousands of malformed frames, with a bystander that must not notice (promise 6)."""

from pathlib import Path

from broker_fixture import RunningBroker

from cordwood.chaos.live.malformed import flood

FRAMES = 10_000


def test_malformed_frames_trouble_neither_the_broker_nor_a_bystander(tmp_path: Path) -> None:
    broker = RunningBroker(
        tmp_path / "data", auto_create_topics_enable="false", group_initial_rebalance_delay_ms="0"
    ).start()
    try:
        verdict = flood(broker.port, broker.pid, FRAMES, seed=1, processes=2)
    finally:
        broker.stop()
    assert verdict.complaints == ()
    assert verdict.tally.taken >= FRAMES
    assert verdict.tally.closed_by_broker > FRAMES // 20
    assert verdict.observed.acknowledged > 100
    assert [line[-600:] for line in broker.output.splitlines() if "Traceback" in line][:3] == []
