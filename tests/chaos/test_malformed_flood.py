"""The flood of malformed frames: determined by its seed, with every kind of damage, and detection of a dead broker."""

import threading
from pathlib import Path

from broker_fixture import RunningBroker

from cordwood.chaos.live import malformed_frames
from cordwood.chaos.live.malformed import flood
from cordwood.chaos.live.malformed_frames import After, bursts


def test_the_same_seed_gives_the_same_frames() -> None:
    assert bursts("7", 2000) == bursts("7", 2000)
    assert bursts("7", 2000) != bursts("8", 2000)


def test_every_kind_of_damage_and_of_ending_comes_up() -> None:
    drawn = bursts("7", 20_000)
    kinds = {kind for burst in drawn for kind in burst.kinds}
    damages = (*malformed_frames.OFTEN_SURVIVED, *malformed_frames.USUALLY_FATAL)
    assert kinds == {damage.__name__ for damage in damages}
    assert {burst.after for burst in drawn} == set(After)


def test_a_broker_that_falls_is_noticed(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data", auto_create_topics_enable="false").start()
    killer = threading.Timer(2.0, broker.kill)
    killer.start()
    verdict = flood(broker.port, broker.pid, 1_000_000, seed=1, processes=1)
    killer.join()
    assert any("the broker is gone" in complaint for complaint in verdict.complaints), verdict.complaints
