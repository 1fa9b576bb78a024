"""`/v1/status`: a broker's identity, its led partitions with their followers, log directories and damage."""

import errno
from uuid import UUID

from http_fixture import HttpStory, run

from cordwood.storage.errors import DamagedLog


def test_a_broker_that_has_not_joined_says_so() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            broker.reason = "It is early."
            status = (await broker.ask("/v1/status")).json
            assert (status["broker_id"], status["broker_epoch"], status["incarnation"]) == (1, None, None)
            assert (status["is_fenced"], status["why_not_ready"]) == (True, "It is early.")
            assert (status["controller_id"], status["partitions_led"]) == (None, [])

    run(story())


def test_a_broker_knows_who_it_is_and_who_controls() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            broker.register(2, 1)
            broker.metadata.elect(1)
            status = (await broker.ask("/v1/status")).json
            assert (status["broker_epoch"], status["incarnation"]) == (2, str(UUID(int=1)))
            assert (status["controller_id"], status["is_fenced"]) == (1, True)

    run(story())


def test_a_led_partition_shows_how_far_its_followers_are() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            partition = broker.lead(1, 2, epoch=5, min_isr=2)
            broker.replicas.produce("a")
            partition.leader.follower_attached(2, 1, log_start=0, now=0.0)
            [led] = (await broker.ask("/v1/status")).json["partitions_led"]
            assert led == {
                "topic": "t",
                "partition": 0,
                "leader_epoch": 5,
                "log_start": 0,
                "high_watermark": 0,
                "log_end": 1,
                "in_sync_replicas": [1, 2],
                "min_in_sync_replicas": 2,
                "followers": [
                    {"broker_id": 2, "flushed_end": 1, "lag_records": 0, "is_in_sync": True},
                    {"broker_id": 3, "flushed_end": None, "lag_records": 1, "is_in_sync": False},
                ],
            }

    run(story())


def test_directories_show_their_room_or_what_became_of_them() -> None:
    async def story() -> None:
        async with HttpStory(directories=2) as broker:
            broker.replicas.directories[0].fail(OSError(errno.EIO, "gone"))
            failed, well = (await broker.ask("/v1/status")).json["log_directories"]
            assert failed["path"] == "/data0"
            assert "gone" in failed["error"]
            assert failed["free_bytes"] is None
            assert well["error"] is None
            assert 0 < well["free_bytes"] <= well["total_bytes"]

    run(story())


def test_damage_is_shown_with_its_place_and_what_becomes_of_it() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            damage = DamagedLog("/data0/topics/x/3/0.log", 100, "a bad checksum")
            broker.damage.note(damage, "t", 3)
            broker.damage.begun(damage)
            [place] = (await broker.ask("/v1/status")).json["damaged_places"]
            assert place == {
                "topic": "t",
                "partition": 3,
                "path": "/data0/topics/x/3/0.log",
                "position": 100,
                "what": "a bad checksum",
                "state": "under repair",
            }

    run(story())
