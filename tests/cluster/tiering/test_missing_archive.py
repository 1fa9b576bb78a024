"""A broker without an archive names the topics that need one, as soon as the metadata has them."""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

import pytest
from assignments_fixture import ONE
from quorum_in_memory import MetadataLog
from replica_fixture import surroundings_of
from structlog.testing import capture_logs

from cordwood.archive.manifest import Upload
from cordwood.archive.store import ObjectStore
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.topic_configs import ARCHIVED
from cordwood.cluster.metadata.archive_commands import BeginUpload
from cordwood.cluster.metadata.commands import (
    AlterConfigs,
    Command,
    ConfigChange,
    CreateTopic,
    RegisterBroker,
    ResourceType,
    UnfenceBroker,
)
from cordwood.cluster.metadata.image import ALL_BROKERS
from cordwood.cluster.tiering.archiver import Archiver
from cordwood.replication.replicas import Replicas
from cordwood.replication.waiters import EndOfTickScheduler

SET = (ConfigChange(ARCHIVED, None, "true"),)


class WithoutStore(NamedTuple):
    """The environment of a broker without archive.url."""

    open_store: Callable[[], ObjectStore] | None
    wall_clock: Callable[[], int]
    rng: random.Random


def topic(number: int, *, is_archived: bool = False) -> CreateTopic:
    return CreateTopic(UUID(int=number), f"topic-{number}", ((ONE,),), ((ARCHIVED, "true"),) if is_archived else ())


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (topic(9, is_archived=True), ["topic-9"]),
        (topic(9), []),
        (AlterConfigs(ResourceType.TOPIC, "topic-2", SET), ["topic-2"]),
        (BeginUpload(UUID(int=3), 0, 0, (Upload(UUID(int=8), 0, 10, 0),)), ["topic-3"]),
        (AlterConfigs(ResourceType.BROKER, ALL_BROKERS, SET), ["topic-2", "topic-3"]),
    ],
)
def test_a_topic_is_named_once_it_needs_an_archive(command: Command, named: list[str]) -> None:
    async def story() -> None:
        log = MetadataLog()
        for each in (RegisterBroker(ONE, UUID(int=7), ()), UnfenceBroker(ONE, 1), topic(1, is_archived=True), topic(2)):
            log.apply(each)
        log.apply(topic(3))
        replicas = Replicas([], surroundings_of(ONE, EndOfTickScheduler(asyncio.get_running_loop())))
        with capture_logs() as lines:
            archiver = Archiver(WithoutStore(None, lambda: 0, random.Random(1)), log.voter(1), Settings(node_id=ONE))
            archiver.start(replicas)
            log.apply(command)
        assert [line["topic"] for line in lines] == ["topic-1", *named]

    asyncio.run(story())
