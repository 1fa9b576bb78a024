"""Followers that begin at the local start of their leader, with what the archive knows of the records before."""

import asyncio
from collections.abc import Callable
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
from cordwood.replication.archived_state import _read_again, restore_archived_state
from cordwood.replication.assignment import Assignment
from cordwood.replication.checkpoints import Checkpoints
from cordwood.replication.frames import FollowRequest, PushKind, PushRow
from cordwood.replication.log_repair import rewrite
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.segment_refetch import refetch
from cordwood.replication.tasks import Tasks
from cordwood.replication.truncation import truncation_to
from cordwood.storage import unseen_batches
from cordwood.storage.batch import headers, split
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import OutOfResources
from cordwood.storage.producers import Producers
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE, ArchivedBeginning


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
                await flush(follower)
                while row.kind == PushKind.DATA and (end := follower.partition().log.log_end) < log.log_end:
                    # The pushes that follow, each of one segment.
                    rest = log.read(end, 1 << 20, log.log_end)
                    follower.answer(row._replace(size=len(rest)), data=rest)
                    await flush(follower)
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


async def spanning_follower(archive: ArchiveFixture) -> tuple[LeaderFixture, FollowerFixture, Partition]:
    """Return a leader and a follower whose logs begin within a transaction that is aborted later."""
    leader = await filled()
    partition = leader.partition()
    archive.archive(partition, end=partition.log.segments[2].end_offset)
    assert archive.drop_local(partition)
    follower, replica = following(partition, archive.reads)
    await replicate(leader, follower)
    assert 0 < partition.log.local_start < COUNT + 1, "the marker is not archived"
    assert replica.log.aborted(0, 1) == partition.log.aborted(0, 1) == [(1, 0)]
    return leader, follower, replica


def with_damaged_recovery(follower: FollowerFixture, archive: ArchiveView) -> Partition:
    """Return the follower's replica after a stop, a flipped bit in `recovery`, and a restart."""
    log = follower.partition().log
    follower.partition().close()
    follower.disk.flip(f"{log.directory}/{RECOVERY_FILE}", 20, 0)
    return restarted(follower, archive)


def test_a_damaged_recovery_checkpoint_is_written_again_with_the_producers_that_the_archive_has() -> None:
    async def scenario() -> None:
        archive, unknown = ArchiveFixture(), ArchiveFixture()
        leader, follower, replica = await spanning_follower(archive)
        partition, path = leader.partition(), f"{replica.log.directory}/{RECOVERY_FILE}"
        replica.close()
        follower.disk.flip(path, 20, 0)
        replica = restarted(follower, unknown.reads)
        assert replica.log.aborted(0, 1) == []
        with pytest.raises(ArchiveUnavailable):
            await rewrite(replica, path, Checkpoints(follower.replicas.directories, Tasks()))
        for _ in range(2):
            replica = restarted(follower, archive.reads)
            assert [damage.path for damage in replica.log.damage] == [path]
            await replica_checkpoint(replica, follower)
        await rewrite(replica, path, Checkpoints(follower.replicas.directories, Tasks()))
        assert replica.log.aborted(0, 1) == [(1, 0)]
        same(replica, partition)
        replica = restarted(follower, unknown.reads)
        same(replica, partition)
        assert replica.log.damage == []

    run(scenario())


async def replica_checkpoint(replica: Partition, follower: FollowerFixture) -> None:
    await Checkpoints(follower.replicas.directories, Tasks()).write(replica)


def test_a_log_whose_first_batches_move_to_the_archive_meanwhile_is_read_from_the_later_ones_on() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader, follower, replica = await spanning_follower(archive)
        replica = with_damaged_recovery(follower, archive.reads)
        path = f"{replica.log.directory}/{RECOVERY_FILE}"
        archive.store.delay_s = 1.0
        repair = asyncio.ensure_future(rewrite(replica, path, Checkpoints(follower.replicas.directories, Tasks())))
        await asyncio.sleep(0.5)
        archive.archive(leader.partition(), end=leader.partition().log.segments[0].end_offset)
        replica.committed_to(replica.log.log_end)
        assert archive.drop_local(replica) == 1
        await repair
        archive.drop_local(leader.partition())
        same(replica, leader.partition())
        assert replica.log.aborted(0, 1) == [(1, 0)]

    run(scenario())


@pytest.mark.parametrize("harm", ["flip", "lose"])
def test_a_damaged_aborted_index_gets_back_a_transaction_that_began_in_the_archive(harm: str) -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader, follower, replica = await spanning_follower(archive)
        replica.close()
        segment = next(one for one in replica.log.segments if one.aborted.listed_count)
        if harm == "flip":
            follower.disk.flip(segment.aborted.path, 20, 0)
        else:
            follower.disk.lose(segment.aborted.path)
        replica = restarted(follower, archive.reads)
        reported = reports_of(replica)
        checkpoints = Checkpoints(follower.replicas.directories, Tasks())
        await rewrite(replica, segment.aborted.path, checkpoints)
        assert reported == [f"{replica.log.directory}/{RECOVERY_FILE}"]
        await rewrite(replica, reported[0], checkpoints)
        assert replica.log.aborted(0, 1) == leader.partition().log.aborted(0, 1) == [(1, 0)]

    run(scenario())


def test_a_refetched_marker_ends_a_transaction_that_began_in_the_archive() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        leader, follower, replica = await spanning_follower(archive)
        replica.close()
        segment = next(one for one in replica.log.segments if one.aborted.listed_count)
        marker_at = segment.locate(segment.aborted.rows()[0].marker_offset)
        follower.disk.flip(segment.path, marker_at + 30, 0)
        follower.disk.flip(f"{replica.log.directory}/{RECOVERY_FILE}", 20, 0)
        replica = restarted(follower, archive.reads)
        with pytest.raises(OutOfResources, match="damaged batches"):
            await restore_archived_state(replica)
        harmed, reported = replica.log.segment_of(segment.base_offset), reports_of(replica)
        assert await refetch(replica, harmed, [1], Reader(leader.partition()))
        assert reported == [f"{replica.log.directory}/{RECOVERY_FILE}"]
        await restore_archived_state(replica)
        assert (replica.log.unseen, replica.log.aborted(0, 1)) == (None, [(1, 0)])
        same(replica, leader.partition())

    run(scenario())


def test_a_truncation_that_reads_batches_asks_the_archive() -> None:
    async def scenario() -> None:
        _, follower, replica = await spanning_follower(ArchiveFixture())
        log, reported = replica.log, reports_of(replica)
        log.producers.transactions.committed_to(log.log_end)
        truncated = follower.truncations.truncate(truncation_to(replica, COUNT, lambda: True))
        truncating = asyncio.ensure_future(truncated)
        await flush(follower)
        assert await truncating
        assert (log.log_end, reported) == (COUNT, [f"{log.directory}/{RECOVERY_FILE}"])

    run(scenario())


def reports_of(replica: Partition) -> list[str]:
    """Return the list to which the paths of reported damage are added from now on."""
    reported: list[str] = []
    replica.context = replace(replica.context, found_damage=lambda _, damage: reported.append(damage.path))
    return reported


class Reader:
    """Reads of another replica."""

    def __init__(self, source: Partition) -> None:
        self._source = source

    async def read(self, _source: int, _partition: Partition, offset: int, _compacted_to: int) -> bytes:
        return self._source.log.read(offset, 1 << 20, self._source.log.log_end)


@pytest.mark.parametrize("is_full", [True, False])
def test_a_truncation_meanwhile_ends_the_second_look(*, is_full: bool) -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        _, follower, replica = await spanning_follower(archive)
        replica = with_damaged_recovery(follower, archive.reads)
        log, run_blocking = replica.log, replica.directory.run_blocking

        async def truncating(work: Callable[..., object], *args: object) -> object:
            if work.__name__ == "read_on":
                if is_full:
                    log.truncate_fully(200, ArchivedBeginning(0, LeaderEpochs(), Producers()))
                else:
                    log.truncate(log.segments[-1].base_offset)
                raise FileNotFoundError(log.directory)
            return await run_blocking(work, *args)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(unseen_batches, "ON_LOOP_MAX_BYTES", 100)
            patched.setattr(replica.directory, "run_blocking", truncating)
            await _read_again(replica, Producers())
        assert log.lacks_archived_producers is not is_full

    run(scenario())


def test_what_retention_has_deleted_is_not_asked_for() -> None:
    async def scenario() -> None:
        archive = ArchiveFixture()
        _, follower, replica = await spanning_follower(archive)
        replica = with_damaged_recovery(follower, archive.reads)
        place = replica.topic_id, replica.index
        known = archive.image.archives[place]
        archive.image = replace(archive.image, archives={place: replace(known, segments=known.segments[-1:])})
        replica.log.segments[0].base_offset = known.segments[-1].start_offset
        archive.store.is_down = True
        await restore_archived_state(replica)

    run(scenario())
