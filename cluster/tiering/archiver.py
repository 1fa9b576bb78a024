"""Uploads of a broker to the archive, and, on the active controller, the archive's topics."""

import random
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from cordwood.archive.store import ObjectStore
from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.image import Image, Place, TopicImage, changed_topics
from cordwood.cluster.metadata.persistent_map import differences
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.tiering.archived_topics import is_archived
from cordwood.cluster.tiering.cut_objects import CutObjects
from cordwood.cluster.tiering.lineage import ahead_of
from cordwood.cluster.tiering.measures import ArchiveMeasures
from cordwood.cluster.tiering.reads import ArchiveReads
from cordwood.cluster.tiering.topic_objects import TopicObjects
from cordwood.cluster.tiering.uploader import Uploader
from cordwood.replication.archive_view import ArchivedRange, ArchiveView, NoArchive
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas

NOTHING_MEASURED = ArchiveMeasures()

_events = structlog.get_logger("archive")


class ArchiverEnvironment(Protocol):
    """The part of a broker's environment for its archive."""

    @property
    def open_store(self) -> Callable[[], ObjectStore] | None: ...
    @property
    def wall_clock(self) -> Callable[[], int]: ...
    @property
    def rng(self) -> random.Random: ...


class NoStore(NoArchive):
    """The archive of a broker without a store. The metadata have the range that a leader's log must have."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    def ahead_of(self, partition: Partition) -> ArchivedRange | None:
        return ahead_of(partition, self._quorum.image.archives.get((partition.topic_id, partition.index)))


class Archiver:
    """A broker's uploads to the archive, and its reads from there. Without a store it warns of topics that need one."""

    def __init__(self, environment: ArchiverEnvironment, quorum: Quorum, settings: Settings) -> None:
        """Raises StoreError if the store's URL or credentials cannot be used. Sends nothing."""
        self.store = None if environment.open_store is None else environment.open_store()
        self._environment, self._quorum, self._settings = environment, quorum, settings
        self._warned: set[str] = set()
        self._uploader: Uploader | None = None
        self._keepers: tuple[TopicObjects, CutObjects] | None = None
        """The work of the active controller."""
        self.reads: ArchiveReads | None = None
        if self.store is not None:
            rate = settings.archive_read_bytes_per_second
            self.reads = ArchiveReads(lambda: quorum.image, self.store, settings.archive_cache_bytes, rate=rate)

    @property
    def view(self) -> ArchiveView:
        """The archive as replication uses it."""
        return self.reads or NoStore(self._quorum)

    def start(self, replicas: Replicas) -> None:
        """Begin to upload from these replicas."""
        quorum, settings, environment = self._quorum, self._settings, self._environment
        if self.store is not None:
            self._uploader = Uploader(quorum, replicas, self.store, settings, environment.wall_clock, environment.rng)
            topics = TopicObjects(quorum, self.store, settings, environment.wall_clock)
            self._keepers = topics, CutObjects(quorum, self.store)
            for part in (self._uploader, *self._keepers):
                part.start()
        else:
            quorum.subscribe(self._warn_of_change)
            self._warn_of(quorum.image, quorum.image.topics_by_id.values(), quorum.image.archives)

    @property
    def measures(self) -> ArchiveMeasures:
        return NOTHING_MEASURED if self._uploader is None else self._uploader.measures

    async def close(self) -> None:
        """Cancel all uploads and reads.

        The next leader, and the next controller, go on with the manifests as they are.
        """
        for part in (self._uploader, *(self._keepers or ()), self.reads):
            if part is not None:
                await part.close()

    def _warn_of_change(self, old: Image, new: Image) -> None:
        archived = [place for place, _, _ in differences(old.archives, new.archives)]
        if old.broker_configs is not new.broker_configs:
            topics: Iterable[TopicImage] = new.topics_by_id.values()
        else:
            changed = [topic for _, topic in changed_topics(old, new)]
            owners = [new.topics_by_id.get(topic_id) for topic_id, _ in archived]
            topics = [topic for topic in (*changed, *owners) if topic is not None]
        self._warn_of(new, topics, archived)

    def _warn_of(self, image: Image, topics: Iterable[TopicImage], archived: Iterable[Place]) -> None:
        """Log an error for each topic with archived segments, or that should have some: this broker has no archive."""
        ids = {topic_id for topic_id, _ in archived}
        broker = broker_config(self._settings, image)
        for topic in topics:
            if topic.name not in self._warned and (topic.id in ids or is_archived(topic, broker)):
                self._warned.add(topic.name)
                _events.error("archive.missing", topic=topic.name, reason="set archive.url, as on the other brokers")
