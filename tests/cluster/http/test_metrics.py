"""Metrics of a scrape: replica roles, follower lag, disks, damage, groups and the quorum."""

import asyncio
import errno

from http_fixture import HttpStory, run

from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.cluster.http.metrics.scrape import LINES_PER_TURN
from cordwood.storage.errors import DamagedLog


def test_replicas_are_counted_by_their_roles() -> None:
    async def story() -> None:
        async with HttpStory(directories=2) as broker:
            for index in range(3):
                broker.lead(1, 2, 3, index=index)
            broker.follow(2, index=0)
            assert await broker.metric("partitions", role="leader") == 2
            assert await broker.metric("partitions", role="follower") == 1
            assert await broker.metric("partitions", role="offline") == 0
            broker.lead(1, 2, 3, index=1).directory.fail(OSError(errno.EIO, "gone"))
            assert await broker.metric("partitions", role="leader") == 1
            assert await broker.metric("partitions", role="offline") == 1

    run(story())


def test_a_partition_without_all_its_replicas_in_sync_is_under_replicated() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            broker.lead(1, 2, 3, min_isr=2)
            assert await broker.metric("under_replicated_partitions") == 0
            broker.lead(1, 2, epoch=2, min_isr=2)
            assert await broker.metric("under_replicated_partitions") == 1
            assert await broker.metric("under_min_isr_partitions") == 0
            broker.lead(1, epoch=3, min_isr=2)
            assert await broker.metric("under_min_isr_partitions") == 1

    run(story())


def test_only_followers_that_lag_or_are_not_in_sync_have_a_lag() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            partition = broker.lead(1, 2)
            broker.replicas.produce("a")
            broker.replicas.produce("b")
            place = {"topic": "t", "partition": "0"}
            partition.leader.follower_attached(2, 1, log_start=0, now=0.0)
            assert await broker.metric("replica_lag_records", **place, broker="2") == 1
            assert await broker.metric("replica_lag_records", **place, broker="3") == 2, "never heard of"
            partition.leader.follower_flushed(2, 1, 2, now=0.0)
            assert await broker.metric("replica_lag_records", **place, broker="2") is None
            partition.leader.follower_attached(3, 2, log_start=0, now=0.0)
            assert await broker.metric("replica_lag_records", **place, broker="3") == 0, "not in sync yet"

    run(story())


def test_every_replica_shows_how_far_it_is() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            broker.replicas.produce("a")
            place = {"topic": "t", "partition": "0"}
            assert await broker.metric("partition_log_end_offset", **place) == 1
            assert await broker.metric("partition_high_watermark_offset", **place) == 0, "nothing is flushed yet"
            await broker.replicas.turn()
            broker.replicas.syncer.let_go()
            assert await broker.metric("partition_high_watermark_offset", **place) == 1
            assert await broker.metric("partition_log_start_offset", **place) == 0
            size = await broker.metric("partition_size_bytes", **place)
            assert size == broker.replicas.partition().log.size > 0

    run(story())


def test_a_failed_disk_is_reported_and_not_asked_for_its_room() -> None:
    async def story() -> None:
        async with HttpStory(directories=2) as broker:
            assert await broker.metric("log_directory_free_bytes", directory="/data0") is not None
            broker.replicas.directories[0].fail(OSError(errno.EIO, "gone"))
            assert await broker.metric("log_directory_offline", directory="/data0") == 1
            assert await broker.metric("log_directory_offline", directory="/data1") == 0
            assert await broker.metric("log_directory_free_bytes", directory="/data0") is None
            assert await broker.metric("log_directory_total_bytes", directory="/data1") is not None

    run(story())


def test_damage_is_counted_until_it_is_repaired_and_after() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            places = [DamagedLog("/data0/topics/x/0/0.log", position, "a bad checksum") for position in (0, 100)]
            for damage in places:
                broker.damage.note(damage, "t", 0)
            broker.damage.done(places[0])
            assert await broker.metric("damaged_places_found_total") == 2
            assert await broker.metric("damaged_places_repaired_total") == 1
            assert await broker.metric("damaged_places") == 1

    run(story())


def test_the_cluster_is_shown_as_this_broker_knows_it() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            assert await broker.metric("raft_leader_id") == -1
            broker.metadata.elect(1)
            broker.register(1, 2)
            assert await broker.metric("raft_leader_id") == 1
            assert await broker.metric("broker_is_controller") == 1
            assert await broker.metric("fenced_brokers") == 2
            assert await broker.metric("raft_commit_index") == broker.metadata.image.index
            assert await broker.metric("connections") == 3
            assert await broker.metric("broker_is_ready") == 1
            broker.reason = "It is early."
            assert await broker.metric("broker_is_ready") == 0

    run(story())


def test_the_process_shows_its_memory() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            assert (await broker.metrics())["process_resident_memory_bytes", frozenset()] > 1 << 20

    run(story())


def test_the_metadata_files_and_the_changes_of_the_metadata_are_counted() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            assert broker.watched.metadata_files is not None
            broker.watched.metadata_files.synced(0.002, 1234)
            assert await broker.metric("raft_journal_bytes") == 1234
            assert await broker.metric("raft_sync_duration_seconds_bucket", le="0.001") == 0
            assert await broker.metric("raft_sync_duration_seconds_bucket", le="0.0025") == 1
            assert await broker.metric("raft_sync_duration_seconds_count") == 1
            assert await broker.metric("controllerships_total") == 0
            broker.metadata.elect(1)
            assert await broker.metric("controllerships_total") == 1
            assert await broker.metric("elections_total", cause="unclean") == 0

    run(story())


def test_a_group_commit_shows_what_it_served() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            for value, index in (("a", 0), ("b", 0), ("c", 1)):
                broker.replicas.produce(value, index=index)
            await broker.replicas.turn()
            assert await broker.metric("flush_duration_seconds_count") == 0, "it is still with the disk"
            assert await broker.metric("uncommitted_records") == 3
            broker.replicas.syncer.let_go()
            assert await broker.metric("flush_duration_seconds_count") == 1
            assert await broker.metric("flush_appends_sum") == 3
            assert await broker.metric("flush_replicas_sum") == 2
            assert await broker.metric("uncommitted_records") == 0

    run(story())


def test_a_group_shows_what_it_has_yet_to_read() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            for value in ("a", "b", "c"):
                broker.replicas.produce(value)
            await broker.replicas.turn()
            broker.replicas.syncer.let_go()
            commits = {("t", 0): Commit(1, -1, ""), ("elsewhere", 7): Commit(5, -1, "")}
            await broker.groups.commit("readers", MemberIdentity(), commits)
            here = {"group": "readers", "topic": "t", "partition": "0"}
            elsewhere = {"group": "readers", "topic": "elsewhere", "partition": "7"}
            assert await broker.metric("group_committed_offset", **here) == 1
            assert await broker.metric("group_lag_records", **here) == 2
            assert await broker.metric("group_committed_offset", **elsewhere) == 5
            assert await broker.metric("group_lag_records", **elsewhere) is None, "no replica of it is here"
            assert await broker.metric("groups", type="classic", state="Empty") == 1
            assert await broker.metric("group_members", type="classic") == 0

    run(story())


def test_a_scrape_lets_others_have_their_turns() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            for index in range(300):
                broker.lead(1, 2, 3, index=index)
            turns, scrape = 0, asyncio.ensure_future(broker.metrics())
            while not scrape.done():
                await asyncio.sleep(0)
                turns += 1
            samples = len(scrape.result())
            assert samples > 1000
            assert turns > samples / LINES_PER_TURN

    run(story())
