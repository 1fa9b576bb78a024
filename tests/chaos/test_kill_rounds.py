"""Kills, power cuts and bit flips of a real broker: acknowledged records survive, and damage is never served."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import Requirement, check

from cordwood.chaos.live import flip, rounds
from cordwood.chaos.live.power_cut import CannotMount, LoopFileSystem
from cordwood.chaos.live.process import BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    yield broker
    broker.kill()


def test_three_kills_under_load_lose_nothing(broker: BrokerProcess) -> None:
    verdict = rounds.run(broker, broker.kill, 3, random.Random(1))
    assert verdict.anomalies == []
    assert verdict.acknowledged > 1000


def test_two_power_cuts_under_load_lose_nothing(tmp_path: Path) -> None:
    try:
        with LoopFileSystem(tmp_path, 256 << 20) as file_system:
            broker = BrokerProcess(file_system.path / "data")
            broker.output_path = tmp_path / "broker.log"

            def crash() -> None:
                file_system.cut_power()
                broker.kill()
                file_system.restore_power()

            try:
                verdict = rounds.run(broker, crash, 2, random.Random(1))
            finally:
                broker.kill()
    except CannotMount as reason:
        check(Requirement.ROOT, False, str(reason))
    assert verdict.anomalies == []
    assert verdict.acknowledged > 1000


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_flipped_bits_of_a_brokers_files_are_named_and_never_served(tmp_path: Path, is_killed: bool) -> None:
    pristine, rng = tmp_path / "pristine", random.Random(1)
    served = flip.prepare(pristine, is_killed=is_killed)
    assert len(served) == flip.RECORDS * len(flip.partitions())
    in_a_log = next(path for path in sorted(pristine.rglob("*.log")) if path.stat().st_size > flip.RECORD_BYTES)
    flips = [flip.Flip(in_a_log.relative_to(pristine), 9000, 3), flip.choose(pristine, rng), flip.choose(pristine, rng)]
    assert [anomaly for one in flips for anomaly in flip.examine(pristine, tmp_path / "data", one, served)] == []
