"""Partitions that only other brokers have: NOT_LEADER_OR_FOLLOWER, so that clients look for the leader."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import message_of
from fetch_requests import fetch, rows, wanted
from handlers_fixture import HandlersStory, tell
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from produce_requests import batch, produce, send
from roles_fixture import TOPIC

from cordwood.bench.counters.cluster import CountedCluster
from cordwood.chaos.sim import loop
from cordwood.chaos.sim.admin import prepare
from cordwood.chaos.sim.host import KAFKA_PORT, host_name
from cordwood.chaos.sim.kafka import Address, SimulatedClient
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.handlers import delete_records, describe_producers, list_offsets, offset_for_leader_epoch
from cordwood.cluster.kafka.leader_hints import Leader
from cordwood.cluster.metadata.commands import BrokerId, Endpoint

MOVED, MOVED_ID = "moved", UUID(int=77)
SETTLED_S = 3.0

Ask = Callable[[HandlersStory, int], Awaitable[ErrorCode]]


async def _produced(broker: HandlersStory, _index: int) -> ErrorCode:
    return (await produce(broker, batch(), topic=MOVED, version=12)).code


async def _produced_by_id(broker: HandlersStory, _index: int) -> ErrorCode:
    return (await produce(broker, batch(), topic_id=MOVED_ID)).code


async def _fetched(broker: HandlersStory, index: int) -> ErrorCode:
    return rows(await fetch(broker, wanted(index=index), topic=MOVED))[index].code


async def _fetched_by_id(broker: HandlersStory, index: int) -> ErrorCode:
    return rows(await fetch(broker, wanted(index=index), topic_id=MOVED_ID, version=18))[index].code


async def _listed(broker: HandlersStory, index: int) -> ErrorCode:
    partition = {"partition_index": index, "timestamp": -1}
    return await _code(broker, list_offsets, topics=({"name": MOVED, "partitions": (partition,)},))


async def _epochs(broker: HandlersStory, index: int) -> ErrorCode:
    partition = {"partition": index, "leader_epoch": 0}
    return await _code(broker, offset_for_leader_epoch, topics=({"topic": MOVED, "partitions": (partition,)},))


async def _deleted(broker: HandlersStory, index: int) -> ErrorCode:
    partition = {"partition_index": index, "offset": 1}
    return await _code(broker, delete_records, topics=({"name": MOVED, "partitions": (partition,)},))


async def _described(broker: HandlersStory, index: int) -> ErrorCode:
    return await _code(broker, describe_producers, topics=({"name": MOVED, "partition_indexes": (index,)},))


async def _code(broker: HandlersStory, handler: Any, **fields: Any) -> ErrorCode:
    answer = await broker.ask(handler.KEY, handler.KEY.versions[-1], **fields)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def moved_away(broker: HandlersStory) -> None:
    """Let the metadata have partition 0 of a topic on other brokers."""
    broker.replicas.is_elsewhere = lambda topic, index: (topic, index) == (MOVED, 0)
    broker.replicas.name_elsewhere = {MOVED_ID: MOVED}.get


ASKED: list[Ask] = [_produced, _produced_by_id, _fetched, _fetched_by_id, _listed, _epochs, _deleted, _described]


@pytest.mark.parametrize("ask", ASKED, ids=lambda ask: ask.__name__)
def test_a_partition_without_a_replica_here_is_led_by_another_broker(ask: Ask) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        moved_away(broker)
        assert await ask(broker, 0) is ErrorCode.not_leader_or_follower

    tell(story)


@pytest.mark.parametrize("ask", ASKED[2:], ids=lambda ask: ask.__name__)
def test_a_partition_that_no_broker_has_is_unknown(ask: Ask) -> None:
    async def story(broker: HandlersStory) -> None:
        moved_away(broker)
        assert await ask(broker, 1) is ErrorCode.unknown_topic_or_partition

    tell(story)


def test_a_producer_is_sent_to_the_leader_of_a_topic_without_a_replica_here() -> None:
    async def story(broker: HandlersStory) -> None:
        moved_away(broker)
        broker.leaders[MOVED, 0] = Leader(BrokerId(2), 5, Endpoint("PLAINTEXT", "two", 9092), None)
        answer = await send(broker, batch(), topic_id=MOVED_ID)
        [row] = answer.responses[0].partition_responses
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 5)
        assert [(node.node_id, node.host) for node in answer.node_endpoints] == [(2, "two")]

    tell(story)


def elsewhere(broker: HandlersStory) -> None:
    moved_away(broker)
    broker.leaders[MOVED, 0] = Leader(BrokerId(2), 5, Endpoint("PLAINTEXT", "two", 9092), "east")


@pytest.mark.parametrize("version", [16, 17, 18])
def test_a_consumer_is_sent_to_the_leader_of_a_partition_without_a_replica_here(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        elsewhere(broker)
        answer = await fetch(broker, wanted(), wanted(index=1), topic_id=MOVED_ID, version=version)
        known, unknown = answer.responses[0].partitions
        assert (known.current_leader.leader_id, known.current_leader.leader_epoch) == (2, 5)
        assert (unknown.error_code, unknown.current_leader.leader_id) == (ErrorCode.unknown_topic_or_partition, -1)
        assert [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints] == [
            (2, "two", 9092, "east")
        ]

    tell(story)


def test_a_consumer_with_an_old_leader_epoch_learns_of_the_new_one() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(epoch=5)
        broker.leaders[TOPIC, 0] = Leader(BrokerId(1), 5, Endpoint("PLAINTEXT", "one", 9092), None)
        answer = await fetch(broker, wanted(epoch=4), version=16)
        [row] = answer.responses[0].partitions
        assert row.error_code is ErrorCode.fenced_leader_epoch
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 5)
        assert [node.host for node in answer.node_endpoints] == ["one"]

    tell(story)


@pytest.mark.parametrize("version", [12, 15])
def test_a_consumer_of_an_earlier_version_is_told_no_leader_as_by_kafka(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        elsewhere(broker)
        answer = await fetch(broker, wanted(), topic=MOVED, topic_id=MOVED_ID, version=version)
        [row] = answer.responses[0].partitions
        assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.not_leader_or_follower, -1)

    tell(story)


def test_a_consumer_of_a_partition_without_a_leader_is_told_none() -> None:
    async def story(broker: HandlersStory) -> None:
        moved_away(broker)
        answer = await fetch(broker, wanted(), topic_id=MOVED_ID, version=16)
        [row] = answer.responses[0].partitions
        assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.not_leader_or_follower, -1)
        assert answer.node_endpoints == ()

    tell(story)


def test_a_broker_knows_from_the_metadata_what_others_have() -> None:
    async def ask(brokers: list[Address]) -> dict[bool, list[ErrorCode]]:
        client = SimulatedClient("asker", MOVED, brokers, random.Random(1))
        await prepare(client, partitions=1, replication_factor=1, min_isr=1)
        await asyncio.sleep(SETTLED_S)
        await client.refresh()
        listing = {"topics": ({"name": MOVED, "partitions": ({"partition_index": 0, "timestamp": -1},)},)}
        fetching = {"topics": ({"topic_id": client.topic_id, "partitions": (wanted(),)},)}
        found = {}
        for broker in brokers:
            by_name = await client.ask(broker, request(ApiKey.LIST_OFFSETS, 7, listing))
            by_id = await client.ask(broker, request(ApiKey.FETCH, 13, fetching))
            topics = *by_name.topics, *by_id.responses
            found[broker == client.leader(0)] = [topic.partitions[0].error_code for topic in topics]
        return found

    async def story() -> dict[bool, list[ErrorCode]]:
        cluster = await CountedCluster(3).begin()
        brokers = [(host_name(broker), KAFKA_PORT) for broker in cluster.world.hosts]
        found: dict[bool, list[ErrorCode]] = await cluster.by(ask(brokers), "asker")
        return found

    assert loop.run(story()) == {True: [ErrorCode.none] * 2, False: [ErrorCode.not_leader_or_follower] * 2}


def request(api: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    return message_of(load_request_schema(api, version), fields)
