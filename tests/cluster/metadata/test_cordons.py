"""Cordoned brokers: which they are, and that no new replica is placed on them."""

import random
from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.cluster.config.rows import BrokerConfig
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.cordons import cordoned_directories, is_cordoned, open_brokers
from cordwood.cluster.metadata.image import BrokerImage, Image
from cordwood.cluster.proposals.topics import new_topic
from cordwood.storage.steps import at_once


def image(**cordoned: str) -> Image:
    brokers = {
        BrokerId(each): BrokerImage(BrokerId(each), UUID(int=each), 1, (), log_dirs=("a", "b"), is_fenced=False)
        for each in (1, 2, 3)
    }
    configs = {name.removeprefix("broker_"): {"cordoned.log.dirs": text} for name, text in cordoned.items()}
    return Image(brokers=brokers, broker_configs=configs)


def test_a_broker_is_cordoned_with_all_of_its_directories() -> None:
    here = image(broker_1="*", broker_2="/a", broker_3="/a,/b")
    assert [int(broker.id) for broker in open_brokers(here)] == [2]
    assert cordoned_directories(here, 2) == {"/a"}
    assert is_cordoned(here, here.brokers[BrokerId(3)])


def test_no_broker_is_cordoned_without_the_config() -> None:
    assert len(list(open_brokers(image()))) == 3


def test_a_config_of_the_broker_precedes_that_of_all() -> None:
    assert [int(broker.id) for broker in open_brokers(image(broker_="*", broker_2=""))] == [2]


def test_a_new_topic_avoids_cordoned_brokers() -> None:
    config = BrokerConfig(Settings())
    made = at_once(new_topic("t", image(broker_2="*"), config, random.Random(1), partitions=30, replication_factor=2))
    assert {int(broker) for replicas in made.assignments for broker in replicas} == {1, 3}


def test_too_few_open_brokers_are_said() -> None:
    config = BrokerConfig(Settings())
    with pytest.raises(Refused, match="1 more broker\\(s\\) are cordoned") as refusal:
        at_once(new_topic("t", image(broker_2="*"), config, random.Random(1), partitions=1, replication_factor=3))
    assert refusal.value.code.name == "invalid_replication_factor"


def test_a_broker_that_registered_no_directories_is_not_cordoned() -> None:
    here = image()
    broker = replace(here.brokers[BrokerId(1)], log_dirs=())
    assert not is_cordoned(here, broker)
