"""Restoration of a cluster from its archive, into the empty log directories of its brokers.

The directories get what brokers leave after a clean stop: logs, flushed offsets, identity, and a snapshot of the
metadata, in which all brokers are registered and fenced. Everything in the snapshot follows from the archive and the
brokers' ids, so that each machine can restore its own directory. The mark of `restore_mark.py` is written first and
replaced last: a broker refuses a directory whose restoration has not ended. A repeated restoration continues where the
last one ended.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from uuid import NAMESPACE_OID, UUID, uuid5

from crc32c import crc32c

from cordwood.archive import layout
from cordwood.archive.commits import Chain, TopicObject, commit_content, read_chain, read_topics
from cordwood.archive.cuts import read_cuts
from cordwood.archive.manifest import PartitionArchive
from cordwood.archive.restore import LocalLimits, Place, RestoredLog, RunBlocking, make_directories, restore_log
from cordwood.archive.segment_state import DamagedState, decode
from cordwood.archive.store import ObjectMissing, ObjectStore
from cordwood.cluster.broker import identity, restore_mark
from cordwood.cluster.broker.restore_mark import RestoreMark
from cordwood.cluster.broker.restored_cuts import restored_cuts
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.commands import Assignment, BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, BrokerImage, Image, PartitionImage, TopicImage
from cordwood.cluster.metadata.journal import NAME, Journal
from cordwood.cluster.metadata.mirror import MirroredDisk, copy_of
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.raft.storage import write_standing
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.cluster.proposals.topics import TRANSACTION_STATE, place
from cordwood.replication.log_directory import MARKS_FILE, METADATA, TOPICS
from cordwood.replication.run_mark import RUN_FILE, STOPPED
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.producers import FIRST_OF_ONE_BATCH
from cordwood.storage.real_disk import LOCK_FILE
from cordwood.storage.steps import at_once

FIRST_INDEX = 1000
"""Index of the first entry that the snapshot stands for. The entries themselves are lost."""
TERM = 1
LEADER_EPOCHS_SKIPPED = 1000
"""Leader epochs after the last archived one: records that were never archived may have had them, and clients know."""
PRODUCER_IDS_SKIPPED = 1_000_000
"""Producer ids after the last one in the archive: producers that were never archived may have them."""
PARTITIONS_AT_ONCE = 4


class CannotRestore(Exception):
    """A mistake, or a loss that was not accepted: a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The first log directory of one broker, on this machine."""

    node_id: int
    directory: str


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """One partition as it was restored. `log` is None where no replica of it is on this machine."""

    topic: str
    partition: int
    log: RestoredLog | None
    gaps: tuple[int, ...]
    """Commits that cannot be read, and that no later one covers: segments after them are not restored."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is restored. `id` is the same on every machine that restores the same archive to the same brokers."""

    id: str
    image: Image
    topics: tuple[TopicObject, ...]
    chains: Mapping[tuple[UUID, int], Chain]
    voters: tuple[BrokerId, ...]
    """Empty for a cluster of one broker without a quorum."""
    passed_over: tuple[str, ...]
    """Sentences about topics and cuts in the archive that are not restored."""

    def partitions(self) -> Iterable[tuple[TopicObject, int]]:
        return ((topic, partition) for topic in self.topics for partition in range(topic.partitions))


async def plan(
    store: ObjectStore,
    cluster_id: str,
    brokers: Sequence[int],
    voters: Sequence[int],
    replication_factor: int | None = None,
) -> RestorePlan:
    """Return the plan of a restoration to these brokers. Raises CannotRestore, StoreError."""
    known = await read_topics(store, cluster_id)
    topics, passed_over = _chosen(known)
    if not topics:
        raise CannotRestore(f"the archive has no topics of a cluster {cluster_id!r}.")
    places = [(topic.id, partition) for topic in topics for partition in range(topic.partitions)]
    limit = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    async def chain_of(at: tuple[UUID, int]) -> tuple[Chain, int]:
        async with limit:
            chain = await read_chain(store, cluster_id, *at)
            return chain, await _next_producer_id(store, cluster_id, at, chain)

    found = await asyncio.gather(*map(chain_of, places))
    chains = {at: _continued(chain) for at, (chain, _) in zip(places, found, strict=True)}
    next_id = max(number for number in (*(one for _, one in found), *(topic.next_producer_id for topic in known)))
    ids = tuple(map(BrokerId, sorted(brokers)))
    image = Image(
        FIRST_INDEX + len(ids),
        cluster_id,
        topics_by_name={topic.name: _topic_image(topic, chains, ids, replication_factor) for topic in topics},
        next_producer_id=min(next_id + PRODUCER_IDS_SKIPPED, FIRST_OF_ONE_BATCH),
        archives={at: chain.archive for at, chain in chains.items() if chain.newest},
    )
    cuts, without = restored_cuts(await read_cuts(store, cluster_id, now_ms=0), chains)
    image = replace(image, topics_by_id={topic.id: topic for topic in image.topics_by_name.values()}, cuts=cuts)
    plan_id = hashlib.sha256(snapshot.encode(image) + repr((ids, sorted(voters))).encode()).hexdigest()[:16]
    registered = {one: _broker_image(plan_id, one, FIRST_INDEX + at) for at, one in enumerate(ids)}
    return RestorePlan(
        plan_id,
        replace(image, brokers=registered),
        topics,
        chains,
        tuple(map(BrokerId, sorted(voters))),
        (*passed_over, *without),
    )


async def restore(
    store: ObjectStore,
    wanted: RestorePlan,
    targets: Sequence[RestoreTarget],
    disk: Disk,
    now_ms: int,
    run_blocking: RunBlocking,
    *,
    accepts_losses: bool = False,
    is_all_local: bool = False,
) -> AsyncIterator[RestoredPartition]:
    """Restore the plan into the targets' directories, which are locked, and yield each partition when it is done.

    With `is_all_local`, local retention does not count. At the end brokers may start. Raises CannotRestore if a
    directory is not empty, or if records are lost and that is not accepted. A repeated restoration continues.
    """
    begun = [target for target in targets if _begin(disk, target.directory, wanted.id)]
    lost = False
    limit = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    async def one(topic: TopicObject, partition: int) -> RestoredPartition:
        async with limit:
            return await _restore_partition(
                store, wanted, topic, partition, begun, disk, now_ms, is_all_local, run_blocking
            )

    restored: dict[tuple[UUID, int], RestoredLog] = {}
    for topic in wanted.topics:
        for done in asyncio.as_completed([one(topic, partition) for partition in range(topic.partitions)]):
            result = await done
            if result.log is not None:
                restored[topic.id, result.partition] = result.log
                lost |= any(loss.start < loss.end for loss in result.log.losses)
            lost |= bool(result.gaps)
            yield result
    if lost and not accepts_losses:
        raise CannotRestore(
            "some records cannot be restored (see above), so no broker may start yet: repeat the command, or accept"
            " the loss with --accept-loss."
        )
    await _close_gaps(store, wanted)
    for target in begun:
        await run_blocking(_complete, disk, target, wanted, restored)
    for target in begun:
        restore_mark.write(disk, target.directory, RestoreMark(wanted.id, is_done=True))


async def _restore_partition(
    store: ObjectStore,
    wanted: RestorePlan,
    topic: TopicObject,
    partition: int,
    targets: Sequence[RestoreTarget],
    disk: Disk,
    now_ms: int,
    is_all_local: bool,
    run_blocking: RunBlocking,
) -> RestoredPartition:
    chain = wanted.chains[topic.id, partition]
    replicas = wanted.image.topics_by_id[topic.id].partitions[partition].replicas
    directories = [
        f"{target.directory}/{TOPICS}/{topic.id}/{partition}" for target in targets if target.node_id in replicas
    ]
    log = None
    if directories and chain.end:
        limits = LocalLimits() if is_all_local else _local_limits(topic.configs, now_ms)
        at = Place(wanted.image.cluster_id, topic.id, partition)
        log = await restore_log(store, at, chain, disk, directories, limits, run_blocking)
    return RestoredPartition(topic.name, partition, log, chain.gaps)


def _chosen(topics: Sequence[TopicObject]) -> tuple[tuple[TopicObject, ...], list[str]]:
    """Return the topics to restore, and sentences about the others."""
    by_name: dict[str, TopicObject] = {}
    passed_over = []
    for topic in sorted(topics, key=lambda topic: topic.sequence):
        if topic.is_deleted:
            continue
        if topic.name == TRANSACTION_STATE:
            passed_over.append(
                f"{topic.name}: not restored, since it may be older than the records: transactional ids begin anew"
            )
            continue
        former = by_name.get(topic.name)
        if former is not None:
            passed_over.append(f"{former.name} with the id {former.id}: a newer topic has its name")
        by_name[topic.name] = topic
    return tuple(by_name[name] for name in sorted(by_name)), passed_over


def _continued(chain: Chain) -> Chain:
    """Return the chain as the restored cluster continues it: after a gap, with a commit that has all segments."""
    sequence = chain.newest + 1 if chain.gaps else chain.newest
    return replace(chain, archive=replace(chain.archive, sequence=sequence))


async def _close_gaps(store: ObjectStore, wanted: RestorePlan) -> None:
    """Write a commit with all segments after each gap."""
    for (topic_id, partition), chain in wanted.chains.items():
        if chain.gaps:
            name = layout.commit_name(wanted.image.cluster_id, topic_id, partition, chain.archive.sequence)
            await store.put(name, commit_content(topic_id, partition, None, chain.archive))


async def _next_producer_id(store: ObjectStore, cluster_id: str, at: tuple[UUID, int], chain: Chain) -> int:
    """Return the id after the highest one in the state of the last segment; 0 if that cannot be read."""
    if not chain.archive.segments:
        return 0
    last = chain.archive.segments[-1]
    try:
        content = await store.get(layout.segment_names(cluster_id, *at, last)[1])
        if crc32c(content) != last.state_crc:
            return 0
        producers = decode(content).producers
    except (ObjectMissing, DamagedState):
        return 0
    return max([number + 1 for number, _ in producers if number < FIRST_OF_ONE_BATCH], default=0)


def _topic_image(
    topic: TopicObject,
    chains: Mapping[tuple[UUID, int], Chain],
    brokers: Sequence[BrokerId],
    replication_factor: int | None,
) -> TopicImage:
    alive = [replace(_broker_image("", one, 0), is_fenced=False) for one in brokers]
    factor = min(replication_factor or topic.replication_factor, len(brokers))
    placed = at_once(place(alive, topic.partitions, factor, topic.id.int % len(brokers)))
    partitions = [_partition_image(replicas, chains[topic.id, index].archive) for index, replicas in enumerate(placed)]
    return TopicImage(topic.id, topic.name, tuple(partitions), dict(topic.configs))


def _partition_image(replicas: Assignment, archive: PartitionArchive) -> PartitionImage:
    """Return a partition whose replicas all have the same records: the first broker that is back may lead."""
    latest = max((segment.leader_epoch for segment in archive.segments), default=0)
    return PartitionImage(replicas, replicas, NO_LEADER, max(latest, 0) + LEADER_EPOCHS_SKIPPED)


def _broker_image(plan_id: str, broker_id: BrokerId, epoch: int) -> BrokerImage:
    incarnation = uuid5(NAMESPACE_OID, f"{plan_id}/{broker_id}/incarnation")
    return BrokerImage(broker_id, incarnation, epoch, (), None, (str(_directory_id(plan_id, broker_id)),))


def _directory_id(plan_id: str, broker_id: int) -> UUID:
    return uuid5(NAMESPACE_OID, f"{plan_id}/{broker_id}/directory")


def _local_limits(configs: Mapping[str, str], now_ms: int) -> LocalLimits:
    """Return the limits of local retention. A compacted log stays whole."""
    if configs.get("remote.storage.enable") != "true" or "compact" in configs.get("cleanup.policy", ""):
        return LocalLimits()
    keep_ms, size = int(configs.get("local.retention.ms", -2)), int(configs.get("local.retention.bytes", -2))
    return LocalLimits(now_ms - keep_ms if keep_ms >= 0 else None, size if size >= 0 else None)


def _begin(disk: Disk, directory: str, plan_id: str) -> bool:
    """Mark a directory as being restored. Return False if it is restored already. Raises CannotRestore."""
    make_directories(disk, directory, levels=1)
    mark = restore_mark.read(disk, directory)
    if mark is not None and mark.is_done and mark.plan_id == plan_id:
        return False
    own = {LOCK_FILE, restore_mark.NAME, restore_mark.NAME + checkpoint.STAGED, "lost+found"}
    names = set(disk.list_directory(directory)) - own
    if names and (mark is None or mark.is_done):
        raise CannotRestore(f"{directory} is not empty: give an empty directory.")
    if mark is None or mark.plan_id != plan_id:
        # The archive or the brokers are others than those of the restoration that did not end.
        for name in sorted(names):
            path = f"{directory}/{name}"
            try:
                disk.list_directory(path)
            except NotADirectoryError:
                disk.remove(path)
            else:
                disk.remove_tree(path)
        sync_directory(disk, directory)
    restore_mark.write(disk, directory, RestoreMark(plan_id, is_done=False))
    return True


def _complete(
    disk: Disk, target: RestoreTarget, wanted: RestorePlan, restored: Mapping[tuple[UUID, int], RestoredLog]
) -> None:
    """Write what belongs to no single log: flushed offsets, run mark, identity and metadata. Blocks."""
    directory = target.directory
    make_directories(disk, f"{directory}/{TOPICS}", levels=1)
    with closing(disk.open(f"{directory}/{MARKS_FILE}", create=True)) as file:
        file.truncate(0)
        flushed = FlushedOffsets(file)
        for at, log in restored.items():
            if target.node_id in wanted.image.topics_by_id[at[0]].partitions[at[1]].replicas:
                flushed.mark(*at).note(log.end, log.leader_epoch)
        file.sync()
    checkpoint.write(disk, f"{directory}/{RUN_FILE}", STOPPED)
    identity.claim(disk, directory, wanted.image.cluster_id, target.node_id, _directory_id(wanted.id, target.node_id))
    if target.node_id in wanted.voters or not wanted.voters:
        _write_metadata(disk, f"{directory}/{METADATA}", wanted.image, is_voter=bool(wanted.voters))


def _write_metadata(disk: Disk, directory: str, image: Image, *, is_voter: bool) -> None:
    """Write the metadata of a voter, or both copies of a broker that has no quorum."""
    make_directories(disk, directory if is_voter else copy_of(directory), levels=1 if is_voter else 2)
    copies: Disk = disk if is_voter else MirroredDisk(disk, directory)
    if is_voter:
        write_standing(disk, directory, Standing.MEMBER)
    snapshot.write(copies, directory, Snapshot(image, TERM))
    if disk.exists(f"{directory}/{NAME}"):
        copies.remove(f"{directory}/{NAME}")
    journal = Journal.open(copies, f"{directory}/{NAME}")
    journal.set_vote(TERM, None)
    journal.synced(journal.end, image.index)
    journal.file.sync()
    journal.close()
    sync_directory(copies, directory)
