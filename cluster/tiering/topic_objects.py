"""Topics in the archive, kept by the active controller: an object for each topic, and the end of deleted topics."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID

import structlog

from cordwood.archive.commits import DamagedCommit, TopicObject, decode_topic, topic_content
from cordwood.archive.layout import (
    commits_prefix,
    partition_prefix,
    segment_names,
    sequence_in,
    topic_name,
    topic_prefix,
)
from cordwood.archive.manifest import PartitionArchive
from cordwood.archive.store import ObjectExists, ObjectMissing, ObjectStore, StoreError
from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.archive_commands import BeginUpload, ForgetArchived
from cordwood.cluster.metadata.elections import target_of
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.tiering.archived_topics import is_archived
from cordwood.replication.tasks import Tasks

INTERVAL_S = 2.0
RETRY_S = 10.0

_events = structlog.get_logger("archive")


class TopicObjects:
    """The archive's topic objects, at work while this broker is the active controller.

    A topic is in the metadata's list of archives before it gets an object, so that its deletion is noticed by every
    later controller. Nothing is ever deleted because the metadata lack it: they may be those of another cluster.
    """

    def __init__(self, quorum: Quorum, store: ObjectStore, settings: Settings, wall_clock: Callable[[], int]) -> None:
        self._quorum, self._store, self._settings, self._wall_clock = quorum, store, settings, wall_clock
        self._written: dict[UUID, TopicObject] = {}
        """The newest object of each topic."""
        self._deleted_since_ms: dict[UUID, int] = {}
        """When this controller first saw that an archived topic was deleted."""
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.repeat(self._round, "topics of the archive")

    async def close(self) -> None:
        await self._tasks.close()

    async def _round(self) -> None:
        pause_s = INTERVAL_S
        if not self._quorum.is_leader:
            self._written, self._deleted_since_ms = {}, {}
        elif not self._quorum.image.passed_over:
            try:
                await self._keep()
            except (StoreError, CommandRefused, QuorumFailed) as error:
                _events.warning("archive.topics_postponed", reason=str(error))
                pause_s = RETRY_S
        await asyncio.sleep(pause_s)

    async def _keep(self) -> None:
        image = self._quorum.image
        objects = sorted(wanted_objects(image, self._settings), key=lambda one: one.id)
        for number, wanted in enumerate(objects):
            if not is_up_to_date(self._written.get(wanted.id), wanted, is_first=number == 0):
                await self._write(wanted, is_first=number == 0)
        for topic_id in {topic_id for topic_id, _ in image.archives if topic_id not in image.topics_by_id}:
            await self._end(topic_id)

    async def _write(self, wanted: TopicObject, *, is_first: bool) -> None:
        image = self._quorum.image
        if (wanted.id, 0) not in image.archives and (topic := image.topics_by_id.get(wanted.id)) is not None:
            await self._quorum.propose(BeginUpload(wanted.id, 0, topic.partitions[0].leader_epoch, ()))
        listed = await self._store.list(topic_prefix(image.cluster_id, wanted.id))
        sequences = sorted(one for found in listed if (one := sequence_in(found.name)) is not None)
        if wanted.id not in self._written and sequences:
            with suppress(ObjectMissing, DamagedCommit):
                content = await self._store.get(topic_name(image.cluster_id, wanted.id, sequences[-1]))
                self._written[wanted.id] = decode_topic(content, sequences[-1])
            if is_up_to_date(self._written.get(wanted.id), wanted, is_first=is_first):
                return
        sequence = max(wanted.sequence, sequences[-1] + 1 if sequences else 0)
        with suppress(ObjectExists):
            await self._store.put(topic_name(image.cluster_id, wanted.id, sequence), topic_content(wanted))
        self._written[wanted.id] = wanted
        # A list may lack the newest object, and readers then use the one before.
        await self._store.delete([topic_name(image.cluster_id, wanted.id, one) for one in sequences[:-1]])

    async def _end(self, topic_id: UUID) -> None:
        """Delete all objects of a deleted topic, once its readers have had time to end."""
        image, now_ms = self._quorum.image, self._wall_clock()
        if topic_id not in self._deleted_since_ms:
            await self._mark_deleted(topic_id)
            self._deleted_since_ms[topic_id] = now_ms
        if now_ms < self._deleted_since_ms[topic_id] + self._settings.archive_grace_ms:
            return
        archives = {index: archive for (owner, index), archive in image.archives.items() if owner == topic_id}
        for index, archive in archives.items():
            await self._delete_partition(topic_id, index, archive)
        topics = await self._store.list(topic_prefix(image.cluster_id, topic_id))
        await self._store.delete([one.name for one in topics])
        for index, archive in archives.items():
            await self._quorum.propose(ForgetArchived(topic_id, index, tuple(_ids_of(archive))))

    async def _mark_deleted(self, topic_id: UUID) -> None:
        """Let readers without brokers know that the topic is deleted, before its objects are."""
        image = self._quorum.image
        deleted = TopicObject(topic_id, "", 0, {}, image.next_producer_id, is_deleted=True, sequence=image.index)
        await self._write(deleted, is_first=False)

    async def _delete_partition(self, topic_id: UUID, index: int, archive: PartitionArchive) -> None:
        cluster_id = self._quorum.image.cluster_id
        names = {
            name
            for row in (archive.segments, archive.uploads, archive.removed)
            for one in row
            for name in segment_names(cluster_id, topic_id, index, one)
        }
        # A list may lack the newest objects, and the manifest those of a leader that was late.
        for prefix in (partition_prefix(cluster_id, topic_id, index), commits_prefix(cluster_id, topic_id, index)):
            names.update(one.name for one in await self._store.list(prefix))
        await self._store.delete(sorted(names))


def wanted_objects(image: Image, settings: Settings) -> Iterator[TopicObject]:
    """Yield the object of each archived topic, as of this image."""
    broker = broker_config(settings, image)
    ids = {topic_id for topic_id, _ in image.archives}
    archived = [topic for topic in image.topics_by_id.values() if topic.id in ids or is_archived(topic, broker)]
    for topic in archived:
        configs, partitions = dict(topic.configs), len(topic.partitions)
        replicas = len(target_of(topic.partitions[0]))
        yield TopicObject(
            topic.id, topic.name, partitions, configs, image.next_producer_id, replicas, sequence=image.index
        )


def is_up_to_date(known: TopicObject | None, wanted: TopicObject, *, is_first: bool) -> bool:
    """Return whether the newest object of a topic is up to date.

    Only the first topic's object always has the newest producer id, which changes often: a restored cluster begins at
    the largest of all objects.
    """
    if known is None or (is_first and known.next_producer_id < wanted.next_producer_id):
        return False
    return known._replace(sequence=0, next_producer_id=0) == wanted._replace(sequence=0, next_producer_id=0)


def _ids_of(archive: PartitionArchive) -> Iterator[UUID]:
    for row in (archive.segments, archive.uploads, archive.removed):
        yield from (one.id for one in row)
