"""New leaders whose logs lack archived records, or have others: nothing that is archived is lost (archive rule 5)."""

import asyncio
from dataclasses import replace

import pytest
from archive_fixture import ArchiveFixture
from archived_replicas import filled, flush
from peer_fixture import FOLLOWER, FollowerFixture
from replica_fixture import ME, NOW_MS
from roles_fixture import stamped
from virtual_time import run

from cordwood.archive.manifest import PartitionArchive
from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.tiering.lineage import ahead_of
from cordwood.replication.archive_view import ArchiveUnavailable
from cordwood.replication.archived_leaders import ArchivedLeaders, differs
from cordwood.replication.archived_state import restore_archived_state
from cordwood.replication.assignment import Assignment
from cordwood.replication.follower import first_difference, truncation_end
from cordwood.replication.frames import PushKind, PushRow
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused
from cordwood.storage.batch import headers, peek, split
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog, OutOfResources

EPOCH = 5
"""The leader epoch of the unclean election."""


class Cluster:
    """A former leader with an archive, and a replica that lacks its records and is elected."""

    def __init__(self) -> None:
        self.archive, self.follower = ArchiveFixture(), FollowerFixture()
        self.led = 0

    async def begin(self) -> "Cluster":
        self.former = await filled()
        self.manifest = self.archive.archive(self.former.partition())
        self.end = self.manifest.end or 0
        leaders = ArchivedLeaders(self.follower.truncations, self._on_led)
        self.follower.replicas._context = replace(
            self.follower.replicas._context, archive=self.archive.reads, lead_after_archive=leaders.add
        )
        self.follower.config = replace(self.former.partition().log.config, is_archived=True)
        self.replica = self.follower.follow(0)
        await flush(self.follower)
        return self

    def _on_led(self) -> None:
        self.led += 1

    async def replicate(self, data: bytes) -> None:
        """Let the replica have these batches, as a follower."""
        assert self.replica.following is not None
        self.follower.answer(PushRow(self.replica.following.stream, PushKind.DATA, 0, 0, len(data)), data=data)
        await flush(self.follower)

    async def replicate_below(self, end: int) -> None:
        """Let the replica have the former leader's batches below `end`."""
        log = self.former.partition().log
        data = b"".join(bytes(segment.read(0, segment.size)) for segment in log.segments)
        await self.replicate(b"".join(bytes(batch) for batch in split(data) if peek(bytes(batch)).end <= end))

    async def elect(self) -> Partition:
        """Elect the replica, and wait until it leads."""
        self.assign()
        for _ in range(20):
            await flush(self.follower)
            if self.replica.is_leader:
                break
        return self.replica

    def assign(self, epoch: int = EPOCH, leader: int = ME) -> None:
        self.replica.assigned(Assignment(leader, epoch, epoch, (ME, FOLLOWER), frozenset({leader}), 1))

    def archived(self) -> PartitionArchive:
        return self.archive.image.archives[self.replica.topic_id, 0]


@pytest.mark.parametrize("has", ["nothing", "a part"])
def test_a_leader_that_lacks_archived_records_begins_at_the_archives_end(has: str) -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        if has == "a part":
            await cluster.replicate_below(cluster.end // 2)
            assert 0 < cluster.replica.log.log_end < cluster.end
        replica = await cluster.elect()
        log = replica.log
        assert (log.log_start, log.local_start, log.log_end) == (0, cluster.end, cluster.end)
        assert (replica.high_watermark, cluster.led) == (cluster.end, 1)
        assert replica.append(batch_of("new"), NOW_MS).base_offset == cluster.end
        assert ahead_of(replica, cluster.archived()) is None
        # It knows the epochs and the producers of the archived records.
        known = dict(cluster.former.partition().log.producers)
        for producer_id, entry in log.producers:
            below = [batch for batch in known[producer_id].batches if batch.end_offset <= cluster.end]
            assert entry.batches[-1:] == below[-1:]
        assert [start.epoch for start in log.epochs] == [1, EPOCH]

    run(scenario())


def test_it_does_not_lead_before() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        cluster.archive.store.is_down = True
        cluster.assign()
        await flush(cluster.follower)
        assert not cluster.replica.is_leader
        with pytest.raises(PartitionRefused):
            cluster.replica.append(batch_of("new"), NOW_MS)
        # Another assignment of the same epoch is the one that counts.
        later = Assignment(ME, EPOCH, EPOCH + 1, (ME, FOLLOWER), frozenset({ME, FOLLOWER}), 2)
        cluster.replica.assigned(later)
        cluster.archive.store.is_down = False
        await asyncio.sleep(30)
        await flush(cluster.follower)
        assert cluster.replica.leader.view.assignment is later
        assert cluster.replica.high_watermark == cluster.end, "what is archived is committed"

    run(scenario())


def test_a_later_epoch_ends_the_wait() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        cluster.archive.store.delay_s = 1.0
        cluster.assign()
        await asyncio.sleep(0.5)
        cluster.assign(EPOCH + 1, leader=FOLLOWER)
        for _ in range(20):
            await asyncio.sleep(1)
            await flush(cluster.follower)
        assert (cluster.replica.is_leader, cluster.replica.log.log_end, cluster.led) == (False, 0, 0)

    run(scenario())


def test_a_leader_with_the_archived_records_keeps_its_log() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        end = cluster.former.partition().log.log_end
        await cluster.replicate_below(end)
        cluster.assign()
        assert cluster.replica.is_leader
        assert (cluster.replica.log.log_start, cluster.replica.log.log_end, cluster.replica.log.local_start) == (
            0,
            end,
            0,
        )

    run(scenario())


@pytest.mark.parametrize("common", [0, 30])
def test_a_longer_log_with_other_records_begins_at_the_archives_end(common: int) -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        place = cluster.replica.topic_id, 0
        if common:
            # The archive's records from there on are of another leader than these.
            await cluster.replicate_below(common)
            rows = [replace(one, leader_epoch=3) for one in cluster.manifest.segments if one.end_offset > common]
            first = [one for one in cluster.manifest.segments if one.end_offset <= common]
            archive = replace(cluster.manifest, segments=(*first, *rows))
            cluster.archive.image = replace(cluster.archive.image, archives={place: archive})
        own = cluster.replica.log.log_end
        epoch = 1 if common else 0
        await cluster.replicate(b"".join(stamped(f"other {at}", at, epoch) for at in range(own, 2 * cluster.end)))
        log = cluster.replica.log
        assert log.log_end == 2 * cluster.end
        archived = LeaderEpochs.decode(epochs_of((1, 0), (3, own)) if common else epochs_of((1, 0)))
        assert differs(log, archived, cluster.end)
        if not common:
            replica = await cluster.elect()
            assert (log.log_start, log.local_start, log.log_end) == (0, cluster.end, cluster.end)
            assert (replica.high_watermark, cluster.led) == (cluster.end, 1)

    run(scenario())


def epochs_of(*entries: tuple[int, int]) -> bytes:
    epochs = LeaderEpochs()
    for epoch, offset in entries:
        epochs.assign(epoch, offset)
    return epochs.encode()


def test_epochs_that_only_seem_to_differ_cost_no_record() -> None:
    """A compacted log whose epochs were lost finds only those of the batches that are left."""

    async def scenario() -> None:
        cluster = await Cluster().begin()
        end = cluster.former.partition().log.log_end
        await cluster.replicate_below(end)
        cluster.replica.log.epochs = LeaderEpochs.decode(epochs_of((0, 0)))
        replica = await cluster.elect()
        assert (replica.log.log_end, replica.log.local_start, cluster.led) == (end, 0, 1)
        assert [tuple(start) for start in replica.log.epochs] == [(1, 0)]

    run(scenario())


def test_a_leader_whose_epochs_are_lost_leads_once_the_archive_has_told_them() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        await cluster.replicate_below(cluster.former.partition().log.log_end)
        log, known = cluster.replica.log, list(cluster.replica.log.epochs)
        log.epochs, log.lacks_archived_epochs = LeaderEpochs(), True
        cluster.archive.store.is_down = True
        await cluster.elect()
        assert not cluster.replica.is_leader
        cluster.archive.store.is_down = False
        await asyncio.sleep(30)
        await flush(cluster.follower)
        assert cluster.replica.is_leader
        assert (list(log.epochs), log.lacks_archived_epochs) == (known, False)

    run(scenario())


def test_a_leader_that_has_lost_what_came_after_the_archive_does_not_ask_for_its_producers() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        await cluster.replicate_below(cluster.former.partition().log.log_end)
        log = cluster.replica.log
        cluster.replica.committed_to(log.log_end)
        assert cluster.archive.drop_local(cluster.replica)
        place, kept = (cluster.replica.topic_id, 0), cluster.manifest.segments[:-1]
        log.lost_archived_producers()
        cluster.archive.image = replace(
            cluster.archive.image, archives={place: replace(cluster.manifest, segments=kept)}
        )
        with pytest.raises(ArchiveUnavailable):
            await restore_archived_state(cluster.replica)
        await cluster.elect()
        await restore_archived_state(cluster.replica)
        assert log.unseen is None

    run(scenario())


def test_the_only_replica_does_not_wait_for_batches_that_nothing_can_repair() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        await cluster.replicate_below(cluster.former.partition().log.log_end)
        replica, log = cluster.replica, cluster.replica.log
        replica.committed_to(log.log_end)
        cluster.archive.archive(cluster.former.partition(), end=log.segments[0].end_offset)
        assert cluster.archive.drop_local(replica)
        cluster.follower.disk.flip(log.segments[0].path, 100, 0)
        log.lost_archived_producers()
        cluster.assign()
        assert replica.is_leader
        for error in (DamagedLog, OutOfResources):
            with pytest.raises(error):
                await restore_archived_state(replica)
        replica.assigned(Assignment(ME, EPOCH + 1, EPOCH + 1, (ME,), frozenset({ME}), 2))
        await restore_archived_state(replica)
        assert log.unseen is None

    run(scenario())


def test_a_follower_of_such_a_leader_keeps_what_is_archived_and_loses_the_rest() -> None:
    async def scenario() -> None:
        cluster = await Cluster().begin()
        replica = await cluster.elect()
        replica.append(batch_of("new"), NOW_MS)
        await flush(cluster.follower)
        log = replica.log
        assert log.start_boundary() == cluster.end
        former = cluster.former.partition().log
        assert former.log_end > cluster.end
        difference = first_difference(log.epochs, log.log_end, former.epochs.latest, former.log_end)
        assert difference == (1, cluster.end)
        assert truncation_end(former.epochs, former.log_end, *difference) == cluster.end

    run(scenario())


def test_batches_before_the_local_start_come_from_the_archive() -> None:
    """A coordinator reads its partition so."""

    async def scenario() -> None:
        cluster = await Cluster().begin()
        former = cluster.former.partition().log
        expected = b"".join(bytes(segment.read(0, segment.size)) for segment in former.segments[:-1])
        replica = await cluster.elect()
        found, offset = b"", 0
        while data := await cluster.archive.reads.batches(replica, offset, 500):
            found, offset = found + data, list(headers(data))[-1].end
        assert (found, offset) == (expected, cluster.end)

    run(scenario())
