"""A log whose sealed segments are archived in a directory, with what leaders and log cleaners do to an archive."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid5

from crc32c import crc32c
from log_fixture import SMALL, LogFixture

from cordwood.archive import layout, segment_state
from cordwood.archive.blocking import wait
from cordwood.archive.commits import TopicObject, commit_content, topic_content
from cordwood.archive.manifest import (
    NO_LIMIT,
    ArchivedSegment,
    PartitionArchive,
    Upload,
    with_committed,
    with_replaced,
    with_upload,
    without,
)
from cordwood.archive.obstore_store import open_store
from cordwood.archive.segment_state import SegmentState, state_of
from cordwood.storage.batch import BatchHeader, check, split
from cordwood.storage.index import Index, Interval
from cordwood.storage.producers import Producers

CLUSTER = "shed-1"
INTERVAL_BYTES = 200


class ArchiveWriter:
    """The archive of one partition in a directory, changed as leaders and log cleaners change it."""

    def __init__(
        self, directory: Path, topic: str, topic_id: UUID, *, partition: int = 0, cluster_id: str = CLUSTER
    ) -> None:
        self.url = directory.as_uri()
        self.store = open_store(self.url)
        self.topic, self.topic_id, self.partition, self.cluster_id = topic, topic_id, partition, cluster_id
        self.archive = PartitionArchive()
        self.states: dict[UUID, SegmentState] = {}
        self.next_id = 0

    @property
    def archived(self) -> tuple[ArchivedSegment, ...]:
        """The archived segments."""
        return self.archive.segments

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
        """Replace a segment by one that also has the last batches of the one before, as from another leader."""
        before, segment = self.archived[at - 1 : at + 1]
        batches = [*list(split(self.content_of(before)))[-3:], *split(self.content_of(segment))]
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
        for name, stored in zip(self.names_of(segment), (content, encoded), strict=True):
            wait(self.store.put(name, stored))
        self.states[identity] = state
        return segment

    def _commit(self, after: PartitionArchive) -> None:
        content = commit_content(self.topic_id, self.partition, self.archive, after)
        wait(
            self.store.put(layout.commit_name(self.cluster_id, self.topic_id, self.partition, after.sequence), content)
        )
        self.archive = replace(after, removed=())


class ArchivedLog(LogFixture):
    """A log of one partition of a topic with an archive. `upload` archives what may be archived."""

    def __init__(self, directory: Path, topic: str = "orders", *, partition: int = 0, partitions: int = 1) -> None:
        super().__init__(SMALL)
        self.writer = ArchiveWriter(directory, topic, uuid5(UUID(int=1), topic), partition=partition)
        if partition == 0:
            self.writer.put_topic(partitions)

    def upload(self, *, roll: bool = True) -> "ArchivedLog":
        """Archive all sealed segments below the last stable offset. With `roll`, seal the active segment before."""
        self.flush()
        if roll:
            self.seal()
        for segment in self.log.segments[:-1]:
            if segment.end_offset > self.last_stable() or segment.end_offset <= (self.writer.archive.end or 0):
                continue
            before = self.writer.states[self.writer.archived[-1].id].producers_encoded if self.writer.archived else None
            state = state_of(segment, self.log.epochs, before)
            self.writer.put_segment(bytes(segment.read(0, segment.size)), state)
        return self

    def seal(self) -> None:
        """Seal the active segment, if it has records."""
        if self.log.segments[-1].size:
            self.log.roll_if_active(self.log.segments[-1])


def replaced_index(state: SegmentState, batches: Sequence[bytes]) -> SegmentState:
    """Return the state with the index of these batches."""
    index, pending, position = Index(), b"", 0
    first = max_timestamp = -1
    for at, batch in enumerate(batches):
        header = check(batch)
        first = header.base_offset if not pending else first
        pending += batch
        max_timestamp = max(max_timestamp, header.max_timestamp)
        if len(pending) >= INTERVAL_BYTES or at + 1 == len(batches):
            row = Interval(first - state.base_offset, position, len(pending), crc32c(pending), max_timestamp)
            index.append(row)
            position, pending, max_timestamp = position + len(pending), b"", -1
    return state._replace(index_rows=index.encode())
