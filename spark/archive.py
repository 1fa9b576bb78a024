"""Archived offset ranges of a Spark task, which it reads from the object store itself."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cordwood.archive.batches import ArchiveReader
from cordwood.archive.blocking import wait
from cordwood.archive.catalog import ArchivedPartitionLog, DamagedObject, PartitionId, read_partition, read_partitions
from cordwood.archive.obstore_store import credentials_in, open_store
from cordwood.archive.store import ObjectStore, StoreError
from cordwood.columnar.batches import FetchedBatches
from cordwood.columnar.errors import CorruptRecords, OffsetsGone
from cordwood.columnar.ranges import Isolation, OffsetRange
from cordwood.spark.errors import Unavailable, WrongOption
from cordwood.storage.types import TopicPartition

TASK_BYTES = 128 << 20
"""Archived bytes per task of a batch, as in Spark's file sources."""
KNOWN_MAX = 256

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The URL of an archive, and settings of its object store by obstore's keys. Its repr has no secret."""

    url: str
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: str, credentials_file: str | None, given: Mapping[str, str]) -> "StoreSettings":
        """Return the settings, with those of a file on the driver. Raises WrongOption."""
        try:
            settings = {**(credentials_in(credentials_file) if credentials_file else {}), **given}
            open_store(url, settings)
        except StoreError as error:
            raise WrongOption(f"archive.url: {error}") from None
        return cls(url, tuple(sorted(settings.items())))

    def open(self) -> ObjectStore:
        """Return the store, which is opened once in each process."""
        if self not in _stores:
            _stores[self] = open_store(self.url, dict(self.store))
        return _stores[self]


@dataclass(frozen=True, slots=True)
class ArchivedTask:
    """The settings of a task that reads its partition from the archive.

    `not_before_ms` is the time of a pushed-down filter.
    """

    settings: StoreSettings
    partition: PartitionId
    not_before_ms: int | None = None


_stores: dict[StoreSettings, ObjectStore] = {}
_known: dict[tuple[StoreSettings, PartitionId], ArchivedPartitionLog] = {}
"""What this process has read of the manifests. Spark reuses its Python workers for further tasks."""


class TaskArchive:
    """The archive of one task's partition. After a failure it has nothing: the brokers have the same records."""

    def __init__(self, task: ArchivedTask, isolation: Isolation) -> None:
        self._task, self._isolation = task, isolation
        self._reader: ArchiveReader | None = None
        self._has_failed = False
        self.position = 0
        """The next offset to read."""

    def next_range(self, wanted: OffsetRange) -> OffsetRange | None:
        """Return the first range of archived offsets among the wanted ones; None if there is none."""
        if self._reader is None and not self._has_failed:
            self._open(wanted)
        if self._reader is None or self._has_failed:
            return None
        start, end = max(wanted.start, self._reader.partition.start), min(wanted.end, self._reader.end)
        return replace(wanted, start=start, end=end) if start < end else None

    def fetch(self, wanted: OffsetRange) -> Iterator[FetchedBatches]:
        """Yield the batches of an archived range, up to the first failure: `position` is where the brokers go on."""
        assert self._reader is not None, "it has returned the range"
        self.position = wanted.start
        try:
            for fetched in self._reader.fetch(wanted, not_before_ms=self._task.not_before_ms):
                yield fetched
                self.position = fetched.end
            self.position = wanted.end
        except (StoreError, DamagedObject, CorruptRecords, OffsetsGone) as error:
            self._fail(error)
        finally:
            _remember(self._task, self._reader.partition)

    def _open(self, wanted: OffsetRange) -> None:
        task = self._task
        try:
            store, known = task.settings.open(), _known.get((task.settings, task.partition))
            if known is None or _end(known, self._isolation) < wanted.end:
                known = wait(read_partition(store, task.partition))
                _remember(task, known)
            self._reader = ArchiveReader(store, known, isolation=self._isolation)
        except (StoreError, DamagedObject) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        log.warning("reading from brokers in place of the archive: %s", error)


def borders(
    settings: StoreSettings, partitions: Mapping[TopicPartition, PartitionId], isolation: Isolation
) -> dict[TopicPartition, list[int]]:
    """Return the offsets at which tasks of about TASK_BYTES begin and end. Raises Unavailable."""
    try:
        archived = wait(read_partitions(settings.open(), partitions.values()))
    except StoreError as error:
        raise Unavailable(f"the archive cannot be read: {error}") from None
    except DamagedObject as error:
        log.warning("tasks are planned without the archive: %s", error)
        return {}
    return {place: _borders(one, isolation) for place, one in zip(partitions, archived, strict=True)}


def split(ranges: Iterable[OffsetRange], at: Mapping[TopicPartition, list[int]]) -> Iterator[OffsetRange]:
    """Yield the ranges, split at these offsets."""
    for whole in ranges:
        rest = whole
        for border in at.get(whole.place, ()):
            if rest.start < border < rest.end:
                yield replace(rest, end=border)
                rest = replace(rest, start=border)
        yield rest


def _borders(archived: ArchivedPartitionLog, isolation: Isolation) -> list[int]:
    found, size = [archived.start], 0
    for segment in archived.segments:
        if size and size + segment.size > TASK_BYTES:
            found.append(segment.start_offset)
            size = 0
        size += segment.size
    return [*found, _end(archived, isolation)]


def _end(archived: ArchivedPartitionLog, isolation: Isolation) -> int:
    return archived.decided_end if isolation is Isolation.READ_COMMITTED else archived.end


def _remember(task: ArchivedTask, archived: ArchivedPartitionLog) -> None:
    if len(_known) >= KNOWN_MAX:
        _known.clear()
    _known[task.settings, task.partition] = archived
