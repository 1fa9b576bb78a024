"""Answers about consumer and share groups, to raw requests, are those that Apache Kafka has given.

`make compat SUITES=group_answers ARGS='--words record'` records them.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import consumer_group_scripts
import pytest
import share_group_scripts
from broker_fixture import RunningBroker
from consumer_group_scripts import SETTINGS
from group_dialog import differences, play, scripts_of

RECORDED = json.loads(Path(__file__).with_name("group_answers.json").read_text())
SCRIPTS = scripts_of(consumer_group_scripts, share_group_scripts)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("answers") / "data", **SETTINGS).start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_answers_are_those_of_kafka(broker: RunningBroker, name: str) -> None:
    differing = differences(RECORDED["scripts"][name], play(SCRIPTS[name], broker.bootstrap))
    assert not differing, "\n".join([f"{RECORDED['oracle']} answers otherwise:", *differing])


def test_every_script_is_recorded() -> None:
    assert sorted(RECORDED["scripts"]) == sorted(SCRIPTS)
