"""A log whose sealed segments are archived in a directory, with what leaders and log cleaners do to an archive."""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID, uuid5

from crc32c import crc32c
from log_fixture import SMALL, LogFixture

from cordwood.archive import layout, segment_state
from cordwood.archive.blocking import wait
from cordwood.archive.commits import TopicObject, commit_content, topic_content
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive, Upload, with_committed, with_upload
from cordwood.archive.segment_state import encode, state_of
from cordwood.archive.store import ObjectStore
from cordwood.storage.log import Log
from cordwood.storage.segment import Segment

CLUSTER = "shed-1"
INTERVAL_BYTES = 200


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

    def put_topic(self, partitions: int = 1, *, sequence: int = 1, is_deleted: bool = False) -> None:
        """Write the topic object."""
        topic = TopicObject(self.topic_id, self.topic, partitions, {}, 0, is_deleted=is_deleted)
        wait(self.store.put(layout.topic_name(self.cluster_id, self.topic_id, sequence), topic_content(topic)))

    def put_segment(self, content: bytes, state: SegmentState, *, start_offset: int | None = None) -> None:
        """Archive a segment after the others, with the part from `start_offset` on."""
        segment = self._put(content, state, state.base_offset if start_offset is None else start_offset)
        self._commit(with_committed(self.archive, [segment]))

    def put_batches(self, batches: Sequence[bytes]) -> None:
        """Archive batches that are in no transaction as a segment after the others."""
        headers = [check(batch) for batch in batches]
        base, end = headers[0].base_offset, headers[-1].end
        producers = Producers().snapshot(end).encode()
        state = SegmentState(base, end, base, max(one.max_timestamp for one in headers), b"", b"", producers, b"")
        self.put_segment(b"".join(batches), replaced_index(state, batches))

    def repeat_before(self, at: int) -> None:
        """Replace a segment by one that also has the last batches of the one before: another leader's, in effect."""
        before, segment = self.archived[at - 1 : at + 1]
        batches = [*list(split(self.content_of(before)))[-2:], *split(self.content_of(segment))]
        state = self.states[segment.id]
        base = check(batches[0]).base_offset
        repeated = replaced_index(state._replace(base_offset=base), batches)
        self.replace_segments([segment], [(b"".join(batches), repeated, segment.start_offset)])

    def compact(self, first: int, stop: int, keeps: Callable[[BatchHeader], bool]) -> None:
        """Replace archived segments by one with the batches that are kept, as the log cleaner does."""
        old = self.archived[first:stop]
        batches = [
            batch
            for segment in old
            for batch in split(self.content_of(segment))
            if keeps(check(batch)) or check(batch).end == old[-1].end_offset
        ]
        states = [self.states[segment.id] for segment in old]
        merged = states[-1]._replace(
            base_offset=states[0].base_offset,
            undecided=states[0].undecided,
            aborted_rows=b"".join([state.aborted_rows for state in states]),
        )
        self.replace_segments(old, [(b"".join(batches), replaced_index(merged, batches), old[0].start_offset)])

    def replace_segments(self, old: Sequence[ArchivedSegment], new: Sequence[tuple[bytes, SegmentState, int]]) -> None:
        """Replace archived segments by new ones, and delete the objects of the old ones."""
        segments = [self._put(*each) for each in new]
        self._commit(with_replaced(self.archive, [segment.id for segment in old], segments, 0))
        self.sweep(old)

    def expire(self, below: int) -> None:
        """Remove the archived segments below an offset, with their objects."""
        old = [segment for segment in self.archived if segment.end_offset <= below]
        self._commit(without(self.archive, below, NO_LIMIT, 0))
        self.sweep(old)

    def sweep(self, segments: Sequence[ArchivedSegment]) -> None:
        """Delete the objects of segments, after the grace period."""
        names = [name for segment in segments for name in self.names_of(segment)]
        wait(self.store.delete(names))

    def names_of(self, segment: ArchivedSegment) -> tuple[str, str]:
        """Return the names of a segment's objects."""
        return layout.segment_names(self.cluster_id, self.topic_id, self.partition, segment)

    def content_of(self, segment: ArchivedSegment) -> bytes:
        """Return the batches of an archived segment."""
        return wait(self.store.get(self.names_of(segment)[0]))

    def _put(self, content: bytes, state: SegmentState, start_offset: int) -> ArchivedSegment:
        self.next_id += 1
        identity = uuid5(self.topic_id, f"{self.partition}-{self.next_id}")
        self.archive = with_upload(self.archive, Upload(identity, state.base_offset, state.end_offset, 0))
        encoded = segment_state.encode(state)
        segment = ArchivedSegment(
            identity,
            state.base_offset,
            start_offset,
            state.end_offset,
            len(content),
            crc32c(content),
            len(encoded),
            crc32c(encoded),
            state.max_timestamp,
            0,
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
