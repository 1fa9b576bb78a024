"""Offsets of many partitions, asked of their leaders."""

from share_fixture import ShareFixture, with_members

from cordwood.cluster.kafka.handlers.list_offsets import LATEST
from cordwood.cluster.kafka.leader_offsets import PLACES_MAX, LeaderOffsets
from cordwood.storage.types import TopicPartition


def test_more_partitions_than_one_request_has_are_all_answered() -> None:
    async def story(group: ShareFixture) -> None:
        count = PLACES_MAX + 2
        await group.create("wide", count)
        broker = group.broker.broker
        offsets = LeaderOffsets(broker._cluster_client("test"), lambda: broker._quorum.image, broker._turns)
        places = [TopicPartition("wide", index) for index in range(count)]
        assert await offsets.listed(places, LATEST) == dict.fromkeys(places, 0)
        await group.produce("x", topic="wide", partition=count - 1)
        assert await offsets.listed(places, LATEST) == dict.fromkeys(places[:-1], 0) | {places[-1]: 1}

    with_members(story)
