"""Reads of records that only the archive has: for consumers, lookups, and replicas that begin after them.

A read is answered from the cache. Missing chunks are downloaded in the background, once for all readers, and the
partition's watchers are woken: a store that is slow or fails delays only readers of archived records. Sequential
readers find the next chunks downloaded before they ask for them.
"""

import asyncio
import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import structlog

from cordwood.archive.layout import segment_names
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive
from cordwood.archive.segment_state import SegmentState
from cordwood.archive.store import ObjectStore, StoreError, StoreUnavailable
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.tiering import chunks
from cordwood.cluster.tiering.cache import CacheEntry, ChunkCache, ChunkKey
from cordwood.cluster.tiering.chunks import CachedChunk, Chunk, DamagedDownload, SegmentContents
from cordwood.cluster.tiering.lineage import ahead_of
from cordwood.replication.archive_view import ArchivedRange, ArchiveUnavailable
from cordwood.replication.log_directory import ARCHIVE_CACHE
from cordwood.replication.partition import Partition
from cordwood.replication.tasks import Tasks
from cordwood.replication.token_bucket import UNLIMITED, TokenBucket
from cordwood.storage.aborted_index import AbortedTransaction
from cordwood.storage.errors import DamagedLog, OutOfResources, change_failed
from cordwood.storage.producers import Producers
from cordwood.storage.slices import Slice, read_end
from cordwood.storage.state import ArchivedBeginning
from cordwood.storage.steps import Steps
from cordwood.storage.timestamps import Found, first_in, latest_in
from cordwood.storage.transaction_log import replay

READ_AHEAD_BYTES = 16 << 20
"""Downloaded ahead of a sequential reader."""
DOWNLOADS_MAX = 8
"""Downloads at the same time: each has a chunk in memory."""
CONTENTS_BYTES_MAX = 64 << 20
"""Memory for the indexes of archived segments that are being read."""
FAILURES_MAX = 1000
NO_FAILURE = (-math.inf, Exception())
RETRY_S = 1.0
"""Delay before a download that has failed is tried again."""
DEBT_S_MIN = 0.001
"""Least delay of consumers that wait for the rate: rounding may leave a debt too small for the clock."""
LOOKUP_S = 20.0
"""Time for a lookup of an offset by time."""

Batches = tuple[Slice | None, list[AbortedTransaction] | None]
NOT_CACHED: Batches = (None, None)

_events = structlog.get_logger("archive")
_ResultT = TypeVar("_ResultT")
RunSteps = Callable[[Steps[Any]], Awaitable[Any]]


class WantedRange(NamedTuple):
    """A read of at most `bytes_max` from `offset` up to `end`, as that of `Log.slice`."""

    offset: int
    bytes_max: int
    end: int
    with_aborted: bool
    """Whether the aborted transactions are wanted, too."""
    wait: bool
    """Whether the disk may be read."""
    may_load: bool = True
    """Whether a download may begin: not in a thread."""


class _Place(NamedTuple):
    """An archived segment of a partition, and its number among the segments of the archive."""

    partition: Partition
    archive: PartitionArchive
    number: int

    @property
    def segment(self) -> ArchivedSegment:
        return self.archive.segments[self.number]


class ArchiveReads:
    """The reads of one broker, as replication (`ArchiveView`) and the handlers of Fetch and ListOffsets need them."""

    def __init__(
        self,
        image: Callable[[], Image],
        store: ObjectStore,
        cache_bytes_max: int,
        chunk_bytes: int = chunks.CHUNK_BYTES,
        rate: int = UNLIMITED,
    ) -> None:
        """`rate` is the limit of all downloads for consumers together, in bytes per second."""
        self._image, self._store, self._chunk_bytes = image, store, chunk_bytes
        self.cache = ChunkCache(cache_bytes_max)
        self.downloaded_bytes = 0
        """Bytes of batches that came from the store."""
        self._contents: OrderedDict[UUID, SegmentContents] = OrderedDict()
        self._loading: dict[Hashable, asyncio.Task[Any]] = {}
        self._failures: dict[Hashable, tuple[float, Exception]] = {}
        """Time and error of downloads that have failed since they last succeeded."""
        self._room = asyncio.Semaphore(DOWNLOADS_MAX)
        self._allowance = TokenBucket(rate)
        self._over_rate: OrderedDict[Partition, None] = OrderedDict()
        """Partitions whose consumers wait until the rate allows a download, in the order in which they take turns."""
        self._file_numbers = count()
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    def ahead_of(self, partition: Partition) -> ArchivedRange | None:
        """Return what is archived if a log lacks records or epochs of it, or may have others there; otherwise None."""
        return ahead_of(partition, self._archive_of(partition))

    def end_of(self, partition: Partition) -> int | None:
        """Return the end of a partition's archived offsets; None if nothing is archived."""
        archive = self._archive_of(partition)
        return None if archive is None else archive.end

    def first_kept(self, partition: Partition) -> int:
        """Return the first offset that the archive or the disk has."""
        archive, local_start = self._archive_of(partition), partition.log.local_start
        return local_start if archive is None or archive.start is None else min(archive.start, local_start)

    def read(self, partition: Partition, wanted: WantedRange) -> Batches:
        """Return batches as `Log.slice` does, from one chunk, and the aborted transactions among them.

        Return no slice if they are not cached: they are being downloaded, and then the partition's watchers are woken.
        Raises ArchiveUnavailable if a retry does not help soon; OutOfResources; NotInMemory as `Log.slice`.
        """
        place = self._place_of(partition, wanted.offset)
        contents = self._contents_of(place, may_load=wanted.may_load)
        if contents is None:
            return NOT_CACHED
        chunk = contents.chunk_of(wanted.offset)
        key = ChunkKey(place.segment.id, chunk.number)
        if wanted.may_load:
            self.cache.use(key)
            # First the chunk that is asked for: what is read ahead may use up what the rate allows.
            if not self._load_chunk(place, contents, chunk):
                self._wake_when_allowed(partition)
            self._read_ahead(place, contents, chunk)
        try:
            cached = self.cache.get(key, wait=wanted.wait)
            batches = None if cached is None else self._batches(place, cached, wanted)
        except OSError as error:
            raise change_failed(error) from error
        except DamagedLog as damage:
            if wanted.may_load:
                _events.warning("cache.damaged", reason=str(damage))
                self._delete(self.cache.remove(key))
                self._failed(key, partition, StoreUnavailable(str(damage)))
            batches = None
        if batches is None:
            return NOT_CACHED
        if batches[0] is not None and not batches[0].size:
            # A gap up to the end of the chunk, in a compacted log.
            return self._read_on(partition, wanted._replace(offset=min(chunk.end_offset, wanted.end)))
        return batches

    def _batches(self, place: _Place, cached: CachedChunk, wanted: WantedRange) -> Batches:
        """Return the records of a cached chunk as `read`; an empty slice if there are none.

        Raises DamagedLog if it differs from what was written, and NotInMemory.
        """
        offset, bytes_max, end, with_aborted, wait, may_load = wanted
        found = _slice(cached, offset, bytes_max, end, wait=wait)
        if not with_aborted or not found.size:
            return found, None
        aborted = self._aborted(place, offset, found.next_offset(wait=wait), wait=wait, may_load=may_load)
        return NOT_CACHED if aborted is None else (found, aborted)

    def _read_on(self, partition: Partition, wanted: WantedRange) -> Batches:
        """Read from a later offset on, which may be on this disk. As `read`."""
        log, offset, wait = partition.log, wanted.offset, wanted.wait
        if offset < log.local_start:
            return self.read(partition, wanted)
        found = log.slice(offset, wanted.bytes_max, wanted.end, wait=wait)
        if found is None or not wanted.with_aborted:
            return found, None
        return found, log.aborted(offset, found.next_offset(wait=wait), wait=wait)

    async def first_at_or_after(self, partition: Partition, timestamp: int, run: RunSteps) -> Found | None:
        """Return the first record with at least this timestamp that only the archive has; None if it has none.

        `run` runs the search of a chunk. Raises ArchiveUnavailable, DamagedLog, OutOfResources.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOKUP_S):
                for place in self._places(partition):
                    if place.segment.max_timestamp < timestamp:
                        continue
                    contents = await self._contents_loaded(place)
                    start = max(place.segment.start_offset, partition.log.log_start)
                    for chunk in contents.chunks:
                        if chunk.end_offset > start and contents.latest_of(chunk) >= timestamp:
                            cached = await self._chunk_loaded(place, contents, chunk)
                            found: Found | None = await run(first_in([cached], timestamp, start, chunk.end_offset))
                            if found is not None:
                                return found
                return None
        raise ArchiveUnavailable("the archive does not answer in time")

    async def latest_by_time(self, partition: Partition, run: RunSteps) -> Found | None:
        """Return the record with the largest timestamp of those that only the archive has. As `first_at_or_after`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOKUP_S):
                places = list(self._places(partition))
                latest = max([place.segment.max_timestamp for place in places], default=-1)
                for place in places:
                    if place.segment.max_timestamp < latest:
                        continue
                    contents = await self._contents_loaded(place)
                    start = max(place.segment.start_offset, partition.log.log_start)
                    for chunk in contents.chunks:
                        if chunk.end_offset > start and contents.latest_of(chunk) == latest:
                            cached = await self._chunk_loaded(place, contents, chunk)
                            found: Found | None = await run(latest_in([cached], start, chunk.end_offset))
                            if found is not None:
                                return found
                return None
        raise ArchiveUnavailable("the archive does not answer in time")

    async def beginning(self, partition: Partition, log_start: int, offset: int) -> ArchivedBeginning:
        """Return the state of the records from `log_start` on for a log that begins at `offset`.

        Raises ArchiveUnavailable, OutOfResources.
        """
        archive = self._archive_of(partition)
        if archive is None or archive.start is None or not archive.start < offset <= (archive.end or 0):
            raise ArchiveUnavailable(f"this broker does not know yet of an archive up to offset {offset}")
        place = self._place_of(partition, offset - 1)
        state = await self._state(place)
        epochs = state.epochs
        epochs.truncate_end(offset)
        epochs.truncate_start(log_start)
        if state.end_offset == offset:
            return ArchivedBeginning(log_start, epochs, state.producers)
        producers = Producers()
        if place.number:
            producers = (await self._state(place._replace(number=place.number - 1))).producers
        contents = await self._contents_loaded(place)
        for chunk in contents.chunks:
            if place.segment.start_offset < chunk.end_offset and chunk.base_offset < offset:
                cached = await self._chunk_loaded(place, contents, chunk)
                bounds = place.segment.start_offset, offset
                await partition.directory.run_blocking(_replay, producers, cached, *bounds)
        return ArchivedBeginning(log_start, epochs, producers)

    async def batches(self, partition: Partition, offset: int, size: int) -> bytes:
        """Return about `size` bytes of batches, the first with `offset`, that the disk does not have.

        Return b"" if there are none up to the local start: a compacted log has gaps. Raises ArchiveUnavailable,
        OutOfResources, DamagedLog.
        """
        run_blocking = partition.directory.run_blocking
        while offset < partition.log.local_start:
            contents = await self._contents_loaded(place := self._place_of(partition, offset))
            chunk = contents.chunk_of(offset)
            data: bytes = await run_blocking(_bytes_of, await self._chunk_loaded(place, contents, chunk), offset, size)
            if data:
                return data
            offset = chunk.end_offset
        return b""

    def _archive_of(self, partition: Partition) -> PartitionArchive | None:
        return self._image().archives.get((partition.topic_id, partition.index))

    def _place_of(self, partition: Partition, offset: int) -> _Place:
        """Return the archived segment with `offset`. Raises ArchiveUnavailable."""
        archive = self._archive_of(partition)
        if archive is not None and archive.start is not None and archive.start <= offset < (archive.end or 0):
            after = bisect_right(archive.segments, offset, key=lambda segment: segment.start_offset)
            return _Place(partition, archive, after - 1)
        raise ArchiveUnavailable(f"this broker has no archived segment with offset {offset}")

    def _places(self, partition: Partition) -> Iterator[_Place]:
        """Yield the archived segments with records that this disk does not have."""
        archive, log = self._archive_of(partition), partition.log
        if archive is not None:
            for number, segment in enumerate(archive.segments):
                if segment.end_offset > log.log_start and segment.start_offset < log.local_start:
                    yield _Place(partition, archive, number)

    def _aborted(
        self, place: _Place, start: int, end: int, *, wait: bool, may_load: bool
    ) -> list[AbortedTransaction] | None:
        """Return the aborted transactions with records from `start` up to `end`; None if they are not known yet."""
        found: set[AbortedTransaction] = set()
        for number in range(place.number, len(place.archive.segments)):
            contents = self._contents_of(place._replace(number=number), may_load=may_load)
            if contents is None:
                return None
            if contents.undecided >= end:
                # Markers from here on end transactions that begin at or above `end`.
                break
            found |= contents.aborted_in(start, end)
        else:
            log = place.partition.log
            if log.lacks_archived_producers:
                # A marker here may end a transaction of these records: the repair asks the archive for its producer.
                return None
            found.update(log.aborted(max(place.archive.end or 0, log.local_start), end, wait=wait))
        return sorted(found, key=lambda transaction: transaction.first_offset)

    def _read_ahead(self, place: _Place, contents: SegmentContents, chunk: Chunk) -> None:
        """Download the next chunks of a sequential reader; for another reader, only one."""
        before = ChunkKey(place.segment.id, chunk.number - 1)
        is_sequential = chunk.number == 0 or before in self.cache or before in self._loading
        room = min(READ_AHEAD_BYTES, self.cache.bytes_max // 4) if is_sequential else 1
        local_start, number = place.partition.log.local_start, chunk.number + 1
        while room > 0 and len(self._loading) < DOWNLOADS_MAX:
            if number == len(contents.chunks):
                place, number = place._replace(number=place.number + 1), 0
                if place.number == len(place.archive.segments) or place.segment.start_offset >= local_start:
                    return
                try:
                    following = self._contents_of(place, may_load=True)
                except ArchiveUnavailable:
                    # The reader gets the error when it reads the chunk.
                    return
                if following is None:
                    return
                contents = following
            ahead = contents.chunks[number]
            if ahead.base_offset >= local_start:
                return
            with suppress(ArchiveUnavailable):
                if not self._load_chunk(place, contents, ahead):
                    return
            room -= ahead.size
            number += 1

    def _contents_of(self, place: _Place, *, may_load: bool) -> SegmentContents | None:
        """Return the contents of a segment; None if they are not loaded. Raises ArchiveUnavailable."""
        known = self._contents.get(place.segment.id)
        if known is None and may_load:
            self._load(place.segment.id, place, lambda: self._fetch_contents(place))
        elif may_load:
            self._contents.move_to_end(place.segment.id)
        return known

    def _load_chunk(self, place: _Place, contents: SegmentContents, chunk: Chunk) -> bool:
        """Begin a download for a consumer, if the chunk is not cached. Return False if the rate does not allow it yet.

        Raises ArchiveUnavailable.
        """
        key = ChunkKey(place.segment.id, chunk.number)
        if key in self.cache or key in self._loading:
            return True
        now = asyncio.get_running_loop().time()
        if self._allowance.debt_s(now):
            return False
        if self._load(key, place, lambda: self._fetch_chunk(key, place, contents, chunk)) is not None:
            self._allowance.charge(chunk.size, now)
        return True

    def _wake_when_allowed(self, partition: Partition) -> None:
        """Let a partition's consumers ask again once the rate allows a download: those that have left do not."""
        is_first = not self._over_rate
        self._over_rate[partition] = None
        if is_first:
            self._wake_later()

    def _wake_later(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(max(self._allowance.debt_s(loop.time()), DEBT_S_MIN), self._wake_next)

    def _wake_next(self) -> None:
        """Wake one partition's consumers: a Fetch may wait for thousands, and the rate allows few downloads at once."""
        if not self._allowance.debt_s(asyncio.get_running_loop().time()):
            while self._over_rate:
                partition, _ = self._over_rate.popitem(last=False)
                if partition.watchers:
                    partition.context.end_of_tick.moved(partition.watchers)
                    break
        if self._over_rate:
            self._wake_later()

    async def _contents_loaded(self, place: _Place) -> SegmentContents:
        segment_id = place.segment.id
        while segment_id not in self._contents:
            await self._loaded(segment_id, place, lambda: self._fetch_contents(place))
        return self._contents[segment_id]

    async def _chunk_loaded(self, place: _Place, contents: SegmentContents, chunk: Chunk) -> CachedChunk:
        key = ChunkKey(place.segment.id, chunk.number)
        run_blocking = place.partition.directory.run_blocking
        while True:
            if key in self.cache:
                try:
                    cached: CachedChunk | None = await run_blocking(lambda: self.cache.get(key, wait=True))
                except (OSError, DamagedLog) as error:
                    self._delete(self.cache.remove(key))
                    raise ArchiveUnavailable(str(error)) from error
                if cached is not None:
                    return cached
            await self._loaded(key, place, lambda: self._fetch_chunk(key, place, contents, chunk))

    async def _loaded(self, key: Hashable, place: _Place, fetch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for a download, which others may wait for, too. Raises ArchiveUnavailable, OutOfResources."""
        loading = self._load(key, place, fetch)
        if loading is None:
            raise ArchiveUnavailable("the archive has just failed to answer")
        error: Exception | None = await asyncio.shield(loading)
        if error is not None:
            raise error if isinstance(error, OutOfResources) else ArchiveUnavailable(str(error))

    def _load(
        self, key: Hashable, place: _Place, fetch: Callable[[], Coroutine[Any, Any, None]]
    ) -> "asyncio.Task[Exception | None] | None":
        """Begin a download, unless it is under way. Return None if it has just failed."""
        loading = self._loading.get(key)
        if loading is None:
            if self._has_just_failed(key):
                return None
            loading = self._loading[key] = self._tasks.spawn(self._run(key, place, fetch), "a read of the archive")
        return loading

    def _has_just_failed(self, key: Hashable) -> bool:
        """Return whether a download has to wait. Raises ArchiveUnavailable if a retry does not help soon."""
        failed_at, error = self._failures.get(key, NO_FAILURE)
        if asyncio.get_running_loop().time() - failed_at >= RETRY_S:
            return False
        if isinstance(error, StoreUnavailable):
            return True
        raise ArchiveUnavailable(str(error)) from error

    def _failed(self, key: Hashable, partition: Partition, error: Exception) -> None:
        """Let no download of `key` begin for RETRY_S. Then readers that still wait try again."""
        loop = asyncio.get_running_loop()
        self._failures[key] = loop.time(), error
        if len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        loop.call_later(RETRY_S, partition.context.end_of_tick.moved, partition.watchers)

    async def _run(
        self, key: Hashable, place: _Place, fetch: Callable[[], Coroutine[Any, Any, None]]
    ) -> Exception | None:
        """Download, and wake the readers. Return the error, if any."""
        partition = place.partition
        try:
            async with self._room:
                await fetch()
        except (StoreError, DamagedDownload, OutOfResources, OSError) as error:
            if key not in self._failures:
                _events.warning("archive.not_read", topic=partition.topic, partition=partition.index,
                                offset=place.segment.start_offset, reason=str(error))  # fmt: skip
            failure = change_failed(error) if isinstance(error, OSError) else error
            self._failed(key, partition, failure)
            return failure
        else:
            self._failures.pop(key, None)
            return None
        finally:
            del self._loading[key]
            partition.context.end_of_tick.moved(partition.watchers)

    async def _state(self, place: _Place) -> SegmentState:
        """Download the state of a segment. Raises ArchiveUnavailable, OutOfResources."""
        try:
            content = await self._store.get(self._names_of(place)[1])
            state: SegmentState = await place.partition.directory.run_blocking(chunks.state_of, place.segment, content)
        except (StoreError, DamagedDownload) as error:
            raise ArchiveUnavailable(str(error)) from error
        return state

    async def _fetch_contents(self, place: _Place) -> None:
        """Download the state of a segment and keep what readers need. Raises StoreError, DamagedDownload."""
        content = await self._store.get(self._names_of(place)[1])
        run_blocking, known = place.partition.directory.run_blocking, self._contents
        known[place.segment.id] = await run_blocking(chunks.contents_of, place.segment, content, self._chunk_bytes)
        while len(known) > 1 and sum([contents.size for contents in known.values()]) > CONTENTS_BYTES_MAX:
            known.popitem(last=False)

    async def _fetch_chunk(self, key: ChunkKey, place: _Place, contents: SegmentContents, chunk: Chunk) -> None:
        """Download a chunk into the cache. Raises StoreError, DamagedDownload, OSError."""
        if key in self.cache:
            return
        directory = place.partition.directory
        name = self._names_of(place)[0]
        content = await self._store.get_range(name, chunk.position, chunk.position + chunk.size)
        path = f"{directory.path}/{ARCHIVE_CACHE}/{next(self._file_numbers)}"

        def keep() -> tuple[chunks.WrittenChunk, CachedChunk]:
            index = chunks.index_of(contents, chunk, content)
            return chunks.write(directory.disk, path, chunk, content, index)

        written, opened = await directory.run_blocking(keep)
        self.downloaded_bytes += len(content)
        self._delete(self.cache.add(key, CacheEntry(written, directory), opened))

    def _names_of(self, place: _Place) -> tuple[str, str]:
        partition = place.partition
        return segment_names(self._image().cluster_id, partition.topic_id, partition.index, place.segment)

    def _delete(self, removed: list[CacheEntry]) -> None:
        if removed:
            self._tasks.spawn(_delete_files(removed), "deletion of cached chunks")


async def _delete_files(removed: list[CacheEntry]) -> None:
    for written, directory in removed:
        try:
            await directory.run_blocking(directory.disk.remove_tree, written.directory)
        except OSError as error:
            _events.warning("files.not_removed", path=written.directory, error=str(error))


def _bytes_of(chunk: CachedChunk, offset: int, size: int) -> bytes:
    found = _slice(chunk, offset, size, chunk.end_offset, wait=True)
    return bytes(chunk.read(found.start, found.stop))


def _slice(chunk: CachedChunk, offset: int, bytes_max: int, end: int, *, wait: bool) -> Slice:
    """Return the batches of a chunk from the one with `offset` on, as `Log.slice`."""
    start = chunk.locate(offset, wait=wait)
    stop = chunk.size if end >= chunk.end_offset else chunk.locate(end, wait=wait)
    intact = chunk.damaged.intact_end(chunk.path, start, stop)
    if stop - start > bytes_max or intact < stop:
        stop = read_end(chunk, start, intact, bytes_max, wait=wait)
    return Slice(chunk, start, stop, chunk.truncations)


def _replay(producers: Producers, chunk: CachedChunk, start: int, end: int) -> None:
    """Record the batches of a chunk from offset `start` up to `end` in the producers' states. Blocks on the disk."""
    for position, header in chunk.headers(0, chunk.size):
        if start <= header.base_offset < end:
            replay(producers, chunk, position, header)
