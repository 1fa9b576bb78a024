"""Followers that begin at the local start of their leader, with what the archive knows of the records before."""

import asyncio
from dataclasses import replace

import pytest
from archive_fixture import ArchiveFixture
from archived_replicas import COUNT, filled, flush
from peer_fixture import FOLLOWER, FollowerFixture, LeaderFixture
from raw_batches import NOW_MS
from replica_fixture import ME, TOPIC_ID
from virtual_time import run

from cordwood.replication import frames
from cordwood.replication.archive_view import ArchiveUnavailable, ArchiveView, NoArchive
from cordwood.replication.assignment import Assignment
from cordwood.replication.checkpoints import Checkpoints
from cordwood.replication.frames import FollowRequest, PushKind, PushRow
from cordwood.replication.log_repair import rewrite
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.tasks import Tasks
from cordwood.storage.batch import headers, split
from cordwood.storage.state import EPOCHS_FILE


def with_archive(broker: FollowerFixture, archive: ArchiveView) -> FollowerFixture:
    broker.replicas._context = replace(broker.replicas._context, archive=archive)
    return broker


def following(leader: Partition, archive: ArchiveView) -> tuple[FollowerFixture, Partition]:
    """Return a follower broker, and its empty replica of the leader's partition."""
    follower = with_archive(FollowerFixture(), archive)
    follower.config = leader.log.config
    return follower, follower.follow(0)


async def archived_leader(archive: ArchiveFixture) -> LeaderFixture:
    """Return a leader of whose log only the archive has the first records."""
    leader = await filled()
    archive.archive(leader.partition())
    assert archive.drop_local(leader.partition()) > 2
    return leader


def answers(leader: LeaderFixture, asked: FollowRequest) -> list[tuple[PushRow, bytes]]:
    """Return the leader's answers to a request."""
    leader.channel.take()
    leader.send(frames.encode_follow([asked]))
    leader.end_of_tick.run()
    return [(row, bytes(data)) for frame in leader.channel.take() for row, data in frames.decode_push(frame)]


async def replicate(leader: LeaderFixture, follower: FollowerFixture) -> list[PushRow]:
    """Carry requests and answers until the follower has the leader's whole log. Return the answers."""
    seen: list[PushRow] = []
    log = leader.partition().log
    for _ in range(20):
        await flush(follower)
        for asked in follower.asked():
            for row, data in answers(leader, asked):
                seen.append(row)
                follower.answer(row, data=data)
        if follower.partition().log.log_end == log.log_end:
            await flush(follower)
            return seen
    raise AssertionError(seen)


def restarted(follower: FollowerFixture, archive: ArchiveView) -> Partition:
    """Return the follower's replica after a power cut and a restart."""
    follower.disk.power_cut(keep=0)
    follower._open_directories()
    with_archive(follower, archive).replicas.open(TopicIdPartition("t", 0, TOPIC_ID), follower.config, NOW_MS)
    return follower.partition()


def same(follower: Partition, leader: Partition) -> None:
    """Check that a follower knows of the archived records what its leader knows."""
    ours, theirs = follower.log, leader.log
    assert (ours.log_start, ours.local_start, ours.log_end) == (0, theirs.local_start, theirs.log_end)
    assert list(ours.epochs) == list(theirs.epochs)
    known = dict(theirs.producers)
    for producer_id, entry in ours.producers:
        assert entry.epoch == known[producer_id].epoch
        assert entry.batches[-1:] == known[producer_id].batches[-1:]
        assert entry.marker_offset == known[producer_id].marker_offset
    assert dict(ours.producers).keys() == known.keys()
    assert ours.producers.transactions.first_undecided(-1) == theirs.producers.transactions.first_undecided(-1)


def test_an_empty_disk_begins_at_the_leaders_local_start() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader = await archived_leader(archive)
        partition = leader.partition()
        follower, replica = following(partition, archive.reads)
        seen = await replicate(leader, follower)
        local_start = partition.log.local_start
        assert seen[0][1:4] == (PushKind.TOO_OLD, local_start, local_start)
        same(replica, partition)
        replica.close()
        same(restarted(follower, archive.reads), partition)

    run(scenario())


def test_a_local_start_within_an_archived_segment_is_replayed_up_to_there() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader = await filled()
        partition = leader.partition()
        known = dict(partition.log.producers)
        for segment in archive.archive(partition).segments:
            for offset in range(segment.start_offset + 1, segment.end_offset + 1):
                _, epochs, producers = await archive.reads.beginning(partition, 0, offset)
                assert epochs.end_of(1, offset) == (1, offset)
                assert producers.transactions.first_undecided(-1) == (0 if offset <= COUNT + 1 else -1)
                for producer_id, entry in producers:
                    below = [batch for batch in known[producer_id].batches if batch.end_offset <= offset]
                    assert entry.batches[-1].end_offset <= offset
                    assert not below or entry.batches[-1] == below[-1]

    run(scenario())


def test_a_follower_with_an_older_log_begins_again() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader = await filled()
        partition = leader.partition()
        follower, replica = following(partition, archive.reads)
        await flush(follower)
        data = bytes(partition.log.segments[0].read(0, partition.log.segments[0].size))
        first = next(split(data))
        (asked,) = follower.asked()
        follower.answer(PushRow(asked.stream, PushKind.DATA, 0, 0, len(first)), data=bytes(first))
        await flush(follower)
        assert replica.log.log_end == headers(bytes(first))[-1].end
        archive.archive(partition)
        archive.drop_local(partition)
        follower.leader_connection._begin_anew(replica.following)
        await replicate(leader, follower)
        same(replica, partition)

    run(scenario())


def test_a_follower_waits_until_it_knows_what_is_archived() -> None:
    async def scenario() -> None:
        archive, unknown = ArchiveFixture(), ArchiveFixture()
        leader = await archived_leader(archive)
        partition = leader.partition()
        follower, replica = following(partition, unknown.reads)
        await flush(follower)
        for _ in range(3):
            for asked in follower.asked():
                follower.answer(*(row._replace(stream=asked.stream) for row, _ in answers(leader, asked)[:1]))
            await flush(follower)
            assert (replica.log.log_start, replica.log.log_end, replica.is_offline) == (0, 0, False)
        unknown.image, unknown.store.objects = archive.image, archive.store.objects
        await asyncio.sleep(5)
        await replicate(leader, follower)
        same(replica, partition)

    run(scenario())


def test_a_new_leader_begins_where_the_archive_does() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader = await filled()
        partition = leader.partition()
        manifest = archive.archive(partition)
        archive.drop_local(partition)
        local_start, kept = partition.log.local_start, manifest.segments[1].start_offset
        for segments, begins in (((), local_start), (manifest.segments[1:], kept), (manifest.segments, 0)):
            for view, expected in ((archive.reads, begins), (NoArchive(), 0)):
                partition.log.log_start = 0
                partition.context = replace(partition.context, archive=view)
                place = partition.topic_id, partition.index
                archive.image = replace(archive.image, archives={place: replace(manifest, segments=segments)})
                partition.leading = None
                epoch = partition.leader_epoch + 1
                partition.assigned(Assignment(ME, epoch, epoch, (ME, FOLLOWER), frozenset({ME}), 1))
                assert partition.log.log_start == expected

    run(scenario())


def test_a_damaged_file_of_leader_epochs_is_written_again_with_what_the_archive_has() -> None:
    async def scenario() -> None:
        archive, unknown = ArchiveFixture(), ArchiveFixture()
        leader = await archived_leader(archive)
        partition = leader.partition()
        follower, replica = following(partition, archive.reads)
        await replicate(leader, follower)
        path = f"{replica.log.directory}/{EPOCHS_FILE}"
        replica.close()
        follower.disk.flip(path, 20, 0)
        replica = restarted(follower, unknown.reads)
        assert list(replica.log.epochs) != list(partition.log.epochs)
        with pytest.raises(ArchiveUnavailable):
            await rewrite(replica, path, Checkpoints(follower.replicas.directories, Tasks()))
        replica = restarted(follower, archive.reads)
        assert [damage.path for damage in replica.log.damage] == [path]
        await rewrite(replica, path, Checkpoints(follower.replicas.directories, Tasks()))
        same(replica, partition)
        replica = restarted(follower, unknown.reads)
        same(replica, partition)
        assert replica.log.damage == []

    run(scenario())
