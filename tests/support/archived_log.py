"""A log whose sealed segments are in an archive, with its commits: what a leader uploads."""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID, uuid5

from crc32c import crc32c
from log_fixture import TOPIC_ID, LogFixture

from cordwood.archive import layout
from cordwood.archive.commits import TopicObject, commit_content, topic_content
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive, Upload, with_committed, with_upload
from cordwood.archive.segment_state import encode, state_of
from cordwood.archive.store import ObjectStore
from cordwood.storage.log import Log
from cordwood.storage.segment import Segment

CLUSTER = "shed-1"


class Opened(NamedTuple):
    """A log on a real disk."""

    log: Log


@dataclass
class ArchivedLog:
    """The archive of one partition of `log`."""

    store: ObjectStore
    log: LogFixture | Opened
    topic_id: UUID = TOPIC_ID
    partition: int = 0
    cluster_id: str = CLUSTER
    archive: PartitionArchive = field(default_factory=PartitionArchive)
    producers: bytes | None = None
    objects: list[tuple[str, str]] = field(default_factory=list)
    """Names of the objects of each segment."""

    async def upload(self, *, has_active: bool = False) -> "ArchivedLog":
        """Upload all sealed segments that are not in the archive yet; with `has_active` the last one, too."""
        segments = self.log.log.segments
        for segment in segments if has_active else segments[:-1]:
            if self.archive.end is None or segment.end_offset > self.archive.end:
                await self.upload_one(segment)
        return self

    async def upload_one(self, segment: Segment) -> None:
        state = state_of(segment, self.log.log.epochs, self.producers)
        self.producers = state.producers_encoded
        content, encoded = bytes(segment.read(0, segment.size)), encode(state)
        base, end = segment.base_offset, segment.end_offset
        start = base if self.archive.end is None else self.archive.end
        archived = ArchivedSegment(
            uuid5(self.topic_id, f"{self.partition}/{base}/{end}"),
            base,
            start,
            end,
            len(content),
            crc32c(content),
            len(encoded),
            crc32c(encoded),
            segment.max_timestamp,
            state.epochs.latest,
        )
        names = layout.segment_names(self.cluster_id, self.topic_id, self.partition, archived)
        self.objects.append(names)
        await self.store.put(names[0], content)
        await self.store.put(names[1], encoded)
        before = self.archive
        announced = with_upload(before, Upload(archived.id, base, end, 0))
        self.archive = with_committed(announced, [archived])
        name = layout.commit_name(self.cluster_id, self.topic_id, self.partition, self.archive.sequence)
        await self.store.put(name, commit_content(self.topic_id, self.partition, before, self.archive))

    async def describe(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Put the topic's object."""
        topic = TopicObject(self.topic_id, name, partitions, configs, 1000)
        await self.store.put(layout.topic_name(self.cluster_id, self.topic_id, 1), topic_content(topic))
