"""The event-loop budget for frames of other brokers: none, with thousands of rows, holds the loop for long (ADR 25)."""

import asyncio
from typing import Any

import pytest
from loop_steps import LongestStep

from cordwood.bench.counters.cluster import CountedCluster
from cordwood.chaos.sim.loop import run
from cordwood.replication import frames
from cordwood.replication.frames import FlushReport, FollowRequest, Open, Start

ROWS = 10_000
CALLS_MAX = 30_000
"""Calls in one step of the loop; about 5 ms on a slow machine."""
STREAM = 1


class Follower(asyncio.Protocol):
    """A connection of a follower that does not read the answers."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended.set()


def malformed() -> bytes:
    """Return a frame that ends the connection, once the frames before it are handled."""
    return frames.encode_push([], 0)


def frame_of(kind: str, topic_id: Any) -> bytes:
    at = range(STREAM, STREAM + ROWS)
    match kind:
        case "FOLLOW":
            return frames.encode_follow(FollowRequest(stream, topic_id, 0, 1, 0, -1, 0) for stream in at)
        case "LEAVE":
            return frames.encode_leave(at)
        case "REPORT":
            return frames.encode_reports(FlushReport(STREAM, 0, 0) for _ in at)
        case _:
            return frames.encode_starts(Start(STREAM, 0) for _ in at)


@pytest.mark.parametrize("kind", ["FOLLOW", "LEAVE", "REPORT", "START"])
def test_a_frame_of_a_follower_with_thousands_of_rows_lets_others_in(kind: str) -> None:
    async def story() -> int:
        cluster = await CountedCluster(3).begin()
        partition, image = cluster.partition(0), cluster.world.image
        follower = next(broker for broker in image.brokers.values() if broker.id != cluster.world.leader(0))
        hello = Open(follower.id, follower.incarnation, follower.epoch, image.cluster_id)
        begun = FollowRequest(STREAM, partition.topic_id, 0, partition.leader_epoch, 0, -1, 0)

        async def send() -> None:
            opened: Any = await asyncio.get_running_loop().create_connection(Follower, *cluster.leader(0))
            transport, connection = opened
            transport.write(frames.encode_open(hello) + frames.encode_follow([begun]))
            transport.write(frame_of(kind, partition.topic_id) + malformed())
            await asyncio.wait_for(connection.ended.wait(), 600)

        with LongestStep() as longest:
            await cluster.by(send(), "follower")
        cluster.check()
        return longest.calls

    assert run(story()) < CALLS_MAX


def test_a_frame_of_thousands_of_rows_is_handled_before_the_next_one() -> None:
    async def story() -> None:
        cluster = await CountedCluster(3).begin()
        partition, image = cluster.partition(0), cluster.world.image
        follower = next(broker for broker in image.brokers.values() if broker.id != cluster.world.leader(0))
        last = FollowRequest(STREAM + ROWS, partition.topic_id, 0, partition.leader_epoch, 0, -1, 0)
        unknown = [last._replace(stream=stream, partition=ROWS) for stream in range(STREAM, STREAM + ROWS)]

        async def send() -> None:
            opened: Any = await asyncio.get_running_loop().create_connection(Follower, *cluster.leader(0))
            transport, connection = opened
            transport.write(
                frames.encode_open(Open(follower.id, follower.incarnation, follower.epoch, image.cluster_id))
                + frames.encode_follow([*unknown, last])
                + frames.encode_leave([last.stream])
            )
            await asyncio.sleep(1)
            assert last.stream not in {stream.id for stream in partition.leader.streams}
            transport.write(malformed())
            await asyncio.wait_for(connection.ended.wait(), 600)

        await cluster.by(send(), "follower")

    run(story())
