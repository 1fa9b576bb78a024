"""Subscriptions to more topics than a coordinator handles in one step: refused, or not read."""

import struct

import pytest
from coordinator_fixture import GROUP, CoordinatorFixture
from groups_fixture import GroupsFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.groups.consumer.embedded import MalformedConsumer, read_subscription
from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.heartbeat import SUBSCRIBED_NAMES_MAX
from cordwood.cluster.groups.state_store import GROUP_BYTES_PER_BATCH_MAX
from cordwood.cluster.kafka.handlers import consumer_group_heartbeat, share_group_heartbeat
from cordwood.storage.steps import at_once

MANY = tuple(f"unknown-{number}" for number in range(SUBSCRIBED_NAMES_MAX + 1))


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@pytest.mark.parametrize("handler", [consumer_group_heartbeat, share_group_heartbeat])
def test_a_subscription_to_too_many_names_is_refused(handler: object) -> None:
    groups = GroupsFixture()
    member = {"group_id": GROUP, "member_id": "anna", "member_epoch": 0, "topic_partitions": ()}
    reply = groups.ask(handler, 1, **member, subscribed_topic_names=MANY)
    assert reply.error_code is ErrorCode.invalid_request
    assert reply.error_message == f"A member subscribes to at most {SUBSCRIBED_NAMES_MAX} topics by name."
    groups.close()


@pytest.mark.parametrize("metadata", [subscription(*MANY), subscription("flights") + bytes(2 << 20)])
def test_a_classic_member_with_a_huge_subscription_is_no_member_of_a_consumer_group(metadata: bytes) -> None:
    with pytest.raises(MalformedConsumer):
        at_once(read_subscription(metadata))


@pytest.mark.parametrize(("count", "is_known"), [(SUBSCRIBED_NAMES_MAX, True), (SUBSCRIBED_NAMES_MAX + 1, False)])
def test_the_topics_of_a_classic_group_are_unknown_if_they_are_too_many(count: int, is_known: bool) -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.join("anna", protocols=(MemberProtocol("range", subscription(*MANY[:count])),))
        group = groups.coordinator.group(GROUP)
        assert group is not None
        assert (group.subscribed_topics is not None) == is_known
        assert group.reads("planes") != is_known, "any topic may be one of them"

    run(story())


def test_large_records_of_a_group_are_several_batches() -> None:
    async def story() -> None:
        groups = CoordinatorFixture()
        await groups.commit(1)
        store = groups.coordinator._state_store
        shard = store.find(GROUP)
        assert shard is not None
        groups.topic.bytes_max = GROUP_BYTES_PER_BATCH_MAX + 1000
        values = [(f"key-{number}".encode(), bytes(GROUP_BYTES_PER_BATCH_MAX // 3)) for number in range(10)]
        await store.append_records(shard, values)
        written = groups.topic.records(groups.partition)[1:]
        assert [(record.key, record.value) for record in written] == values

    run(story())
