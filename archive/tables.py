"""Archived records as Arrow tables, without brokers: `cordwood.archive.open(url).read("orders")`.

DuckDB, polars and everything else that reads Arrow streams can query the result.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.archive import catalog
from cordwood.archive.batches import ArchiveReader
from cordwood.archive.blocking import wait
from cordwood.archive.catalog import ArchivedPartitionLog, DamagedObject, PartitionId
from cordwood.archive.commits import DamagedCommit, TopicObject
from cordwood.archive.cuts import find_cut
from cordwood.archive.obstore_store import credentials_in, open_store
from cordwood.archive.store import ObjectStore
from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.decoder import Decoder
from cordwood.columnar.errors import ReadError
from cordwood.columnar.ranges import Isolation, OffsetRange

Offsets = int | Mapping[int, int]
"""One offset for all partitions, or one for each."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class NoSuchTopic(LookupError):
    """A topic or a partition that the archive does not have."""


class NoSuchCut(LookupError):
    """A cut that the archive does not have, or that has expired, or that has not the wanted topic."""


def open(  # noqa: A001 - cordwood.archive.open
    url: str,
    *,
    cluster: str | None = None,
    credentials: Mapping[str, str] | None = None,
    credentials_file: str | None = None,
) -> "Archive":
    """Return the archive at a URL, as in `archive.url` of the brokers: s3://bucket/prefix, gs://…, az://…, file:///dir.

    `cluster` is a cluster's id, for a store with several. `credentials` are settings by obstore's keys, which a file
    may have, too; the environment has the rest. Raises StoreError.
    """
    given = {**(credentials_in(credentials_file) if credentials_file else {}), **(credentials or {})}
    store = open_store(url, given)
    cluster_id = wait(catalog.find_cluster(store, cluster))
    return Archive(store, cluster_id, wait(catalog.find_topics(store, cluster_id)))


class Archive:
    """The archive of one cluster: its topics as of the time of `open`, and their records as of the time of `read`."""

    def __init__(self, store: ObjectStore, cluster_id: str, topics: Mapping[str, TopicObject]) -> None:
        self._store, self.cluster_id, self._topics = store, cluster_id, topics

    @property
    def topics(self) -> list[str]:
        """The names of the archived topics, sorted."""
        return sorted(self._topics)

    def offsets(self, topic: str, *, isolation: str = "read_committed") -> dict[int, range]:
        """Return the archived offsets of each partition that has some: those that `read` returns.

        Raises NoSuchTopic, StoreError, ReadError.
        """
        readers = self._readers(topic, None, Isolation[isolation.upper()])
        return {place: range(reader.partition.start, reader.end) for place, reader in readers.items() if reader.end}

    def read(
        self,
        topic: str,
        *,
        partitions: Collection[int] | None = None,
        start: Offsets | None = None,
        end: Offsets | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        key: bytes | None = None,
        columns: Collection[str] | None = None,
        cut: str | None = None,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    ) -> pa.RecordBatchReader:
        """Return a reader of archived records, partition by partition, in the order of offsets.

        `start` (inclusive) and `end` (exclusive) are offsets; offsets that are not archived are left out. `since`
        (inclusive) and `until` (exclusive) are times of records, and `key` a record's key: other records are left out,
        and what the archive's indexes exclude is not downloaded. Columns: key, value, topic, partition, offset,
        timestamp, timestampType, and headers if they are named. `cut` is the name of a cut, whose offsets are read, all
        of which must be archived. Raises NoSuchTopic, NoSuchCut, ValueError, StoreError, ReadError; so does the reader.
        """
        if cut is not None:
            start, end = self._cut(cut, topic, start, end)
            partitions = [place for place in end if partitions is None or place in partitions]
        wanted = _columns(columns)
        rows = _Rows(_ms(since), _ms(until), key)
        readers = self._readers(topic, partitions, Isolation[isolation.upper()])
        ranges = {
            place: OffsetRange(
                topic,
                place,
                max(_of(start, place, 0), reader.partition.start),
                min(_of(end, place, reader.end), reader.end),
            )
            for place, reader in readers.items()
        }

        def batches() -> Iterator[pa.RecordBatch]:
            for place, reader in readers.items():
                yield from _read(reader, ranges[place], wanted, rows)

        return pa.RecordBatchReader.from_batches(wanted.arrow_schema, batches())

    def _cut(
        self, name: str, topic: str, start: Offsets | None, end: Offsets | None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the offsets of a topic in a cut. Raises NoSuchCut, ReadError."""
        if (start, end) != (None, None):
            raise ValueError("a cut has its own start and end: leave out the others")
        try:
            found = wait(find_cut(self._store, self.cluster_id, name, int(time.time() * 1000)))
        except DamagedCommit as damage:
            raise ReadError(f"the object of the cut {name} is damaged: {damage}") from None
        ranges = [] if found is None else [one for one in found.ranges if one.topic == topic]
        if not ranges:
            there = "there is no such cut" if found is None else "it has no such topic"
            raise NoSuchCut(f"the archive has no topic {topic} in the cut {name}: {there}")
        archived = self.offsets(topic)
        for one in ranges:
            has = archived.get(one.partition, range(0))
            if one.start < one.end and not (has.start <= one.start and one.end <= has.stop):
                raise ReadError(
                    f"the cut {name} has the offsets from {one.start} to {one.end} of {topic}-{one.partition}, and the"
                    f" archive those from {has.start} to {has.stop}: read the rest from brokers, with Spark"
                )
        return {one.partition: one.start for one in ranges}, {one.partition: one.end for one in ranges}

    def _readers(
        self, topic: str, partitions: Collection[int] | None, isolation: Isolation
    ) -> dict[int, ArchiveReader]:
        known = self._topics.get(topic)
        if known is None:
            raise NoSuchTopic(f"the archive has no topic {topic}: it has {', '.join(self.topics) or 'none'}")
        places = range(known.partitions) if partitions is None else sorted(set(partitions))
        unknown = [place for place in places if place not in range(known.partitions)]
        if unknown:
            raise NoSuchTopic(f"topic {topic} has {known.partitions} partitions, and no partition {unknown[0]}")
        ids = [PartitionId(self.cluster_id, known.id, place) for place in places]
        try:
            found: list[ArchivedPartitionLog] = wait(catalog.read_partitions(self._store, ids))
        except DamagedObject as damage:
            raise ReadError(str(damage)) from None
        return {one.id.partition: ArchiveReader(self._store, one, isolation=isolation) for one in found}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The wanted rows: by time in ms, and by key."""

    since_ms: int | None
    until_ms: int | None
    key: bytes | None

    @property
    def columns(self) -> set[Column]:
        """The columns that decide."""
        times = {Column.TIMESTAMP} if (self.since_ms, self.until_ms) != (None, None) else set()
        return times | ({Column.KEY} if self.key is not None else set())

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted rows of a batch."""
        if self.since_ms is not None:
            batch = batch.filter(pc.greater_equal(batch[Column.TIMESTAMP], _timestamp(self.since_ms)))
        if self.until_ms is not None:
            batch = batch.filter(pc.less(batch[Column.TIMESTAMP], _timestamp(self.until_ms)))
        if self.key is not None:
            batch = batch.filter(pc.equal(batch[Column.KEY], pa.scalar(self.key, pa.binary())))
        return batch


def _read(reader: ArchiveReader, wanted: OffsetRange, columns: Columns, rows: _Rows) -> Iterator[pa.RecordBatch]:
    if not rows.columns:
        decoder = Decoder(wanted, columns)
        for fetched in reader.fetch(wanted):
            yield from decoder.decode(fetched)
        return
    decoder = Decoder(wanted, Columns(tuple(dict.fromkeys((*columns, *sorted(rows.columns))))))
    for fetched in reader.fetch(wanted, not_before_ms=rows.since_ms):
        for batch in decoder.decode(fetched):
            found = rows.of(batch)
            if found.num_rows:
                yield found.select(list(columns))


def _columns(names: Collection[str] | None) -> Columns:
    if names is None:
        return Columns.all(headers=False)
    unknown = [name for name in names if name not in list(Column)]
    if unknown:
        raise ValueError(f"a record has no column {unknown[0]}: it has {', '.join(Column)}")
    return Columns(tuple(map(Column, names)))


def _of(offsets: Offsets | None, place: int, default: int) -> int:
    if isinstance(offsets, Mapping):
        return offsets.get(place, default)
    return default if offsets is None else offsets


def _ms(time: datetime | None) -> int | None:
    """Return a time in ms, rounded up: records have times of whole milliseconds."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: use datetime(…, tzinfo=timezone.utc)")
    return -((EPOCH - time) // MILLISECOND)


def _timestamp(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1000, pa.timestamp("us", tz="UTC"))
