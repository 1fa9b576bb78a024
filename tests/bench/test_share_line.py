"""Share line of the benchmark: ratios, goals, and workers of the load generator on real brokers."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from requirements import Requirement, check

from cordwood.bench.generator import load_generator
from cordwood.bench.groups.shares import BROKERS, LOCK_S, SETTINGS, ShareFigures, fill, missed, ratios
from cordwood.bench.lines import GeneratorMode, LoadLine
from cordwood.bench.systems import Cordwood

AT_ONCE = {"controlled.shutdown.max.wait.ms": "0"}
"""Brokers that all stop together wait in vain for other leaders."""
RECORDS, WORKERS = 60_000, 3


def figures(system: str, **rates: float) -> ShareFigures:
    """Return figures of one round, with rates as `of_100=60_000`."""
    found = ShareFigures(system, "1.0", 10, redelivery_s=[0.1], redelivered=[7])
    found.rates = {int(name.removeprefix("of_")): [rate] for name, rate in rates.items()}
    return found


@pytest.fixture
def ours() -> ShareFigures:
    return figures("cordwood", of_100=60_000, of_1=20_000)


@pytest.fixture
def kafkas() -> ShareFigures:
    return figures("kafka", of_100=40_000, of_1=10_000)


def test_reached_goals_are_not_missed(ours: ShareFigures, kafkas: ShareFigures) -> None:
    assert ratios(ours, kafkas) == {100: 1.5, 1: 2.0}
    assert missed(ours, ratios(ours, kafkas)) == []


def test_each_missed_goal_is_a_sentence(kafkas: ShareFigures) -> None:
    slow = replace(figures("cordwood", of_100=30_000, of_1=19_999), redelivery_s=[0.1, LOCK_S + 1])
    assert missed(slow, ratios(slow, kafkas)) == [
        "share: 0.75 times Kafka with 100 a batch, at least 1 times",
        "share: 19,999 records/s with 1 a batch, at least 20,000 records/s",
        "share: redelivery after 16 s, at most 15 s",
    ]


def test_without_kafka_no_ratio_is_missed(ours: ShareFigures) -> None:
    assert missed(ours, {}) == []


def test_the_median_of_the_rounds_counts(ours: ShareFigures) -> None:
    ours.rates[1] = [5_000, 21_000, 22_000]
    assert missed(ours, {}) == []
    assert "60,000, 21,000 records/s (100, 1 records a batch)" in ours.sentence()


def test_workers_take_all_and_get_the_records_of_a_killed_one(tmp_path: Path) -> None:
    check(Requirement.GO, shutil.which("go") is not None, "there is no Go here")
    said: list[str] = []
    generator = load_generator(tmp_path / "load", said.append)
    assert not said
    line = LoadLine("share", GeneratorMode.SHARE, "shared", RECORDS, consumers=WORKERS, seconds=30.0)
    settings = {
        **SETTINGS,
        "group.share.heartbeat.interval.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "1000",
    }
    with Cordwood(BROKERS, settings | AT_ONCE).running(tmp_path / "brokers") as running:
        generator.create_topic(running.bootstrap, line.topic, 1, BROKERS)
        fill(running.bootstrap, line, 10)
        taken = generator.run(line, running.bootstrap, running.pids)
        assert 0 < taken.records <= RECORDS
        assert taken.seconds < line.seconds, "it ends with the records"
        killed = LoadLine("kill", GeneratorMode.SHARE_KILL, "killed", consumers=WORKERS, rate=1000)
        generator.create_topic(running.bootstrap, killed.topic, 1, BROKERS)
        again = generator.run(killed, running.bootstrap, running.pids)
        assert again.records > 0
        assert again.seconds < LOCK_S
