"""The record reader of the HTTP API: a consumer that fetches a topic's partitions from their leaders.

One task per leader fetches more only after the last records were taken, so that a slow reader uses no more memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.context import Context
from cordwood.cluster.http.records.fetch import Fetched, fetch
from cordwood.cluster.http.records.portions import (
    RECORDS_MAX,
    MarkerRecord,
    Portion,
    Portions,
    next_portion,
    next_usual,
)
from cordwood.cluster.http.refusal import NOT_NOW, HttpRefusal, refusal_of, status_of
from cordwood.cluster.kafka.client_connection import ClientConnection, HungUp
from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.metadata.leaders import Offsets, by_leader
from cordwood.cluster.operations.isolation import IsolationLevel
from cordwood.replication.tasks import Tasks
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record
from cordwood.storage.steps import at_once
from cordwood.storage.types import TopicPartition

PIECES_WAITING_MAX = 1
PACE_S = 0.02
PACED_BYTES = 64 << 10
"""A following reader pauses after a smaller fetch: under load, each fetch then has more records and costs less."""
RETRY_S = 0.2
FAILED = "The broker failed to read the topic: see its log."
PATIENCE_S = 15.0
"""The time after which a bounded reader fails if a partition has no leader."""

_events = structlog.get_logger("http")


class Piece(NamedTuple):
    """New records of one partition. `end` is the next offset to read.

    The records of `missing` were deleted meanwhile, or cannot be decoded, for the given `reason`.
    """

    place: TopicPartition
    records: "Sequence[Record | MarkerRecord]"
    end: int
    missing: range = range(0)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The partitions to read: start offsets, end offsets (None to follow), and an optional key filter.

    `records_max` is the number of records that are of use at a time, if that is small.
    """

    starts: Offsets
    ends: Offsets | None = None
    key: bytes | None = None
    records_max: int = RECORDS_MAX
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    with_markers: bool = False
    """True to read transaction markers too."""


class RecordReader:
    """One reader: `async with RecordReader(…) as reading`, and `await reading.next()` until `is_over`."""

    def __init__(self, context: Context, wanted: Wanted, taker: asyncio.Transport | None) -> None:
        """`taker` is the client that the records are sent to."""
        self._context, self._wanted, self._taker = context, wanted, taker
        self._now = asyncio.get_running_loop().time
        self._next = dict(wanted.starts)
        self._unread = {place for place in wanted.starts if not self._is_at_end(place)}
        self._ready: asyncio.Queue[Piece | HttpRefusal] = asyncio.Queue(PIECES_WAITING_MAX)
        self._is_one_out = False
        """True if a piece was returned that the caller may still hold."""
        self._tasks = Tasks()
        self._is_closed = False

    async def __aenter__(self) -> "RecordReader":
        self._spawn(self._share_out, list(self._unread), self._now() + PATIENCE_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        await self._tasks.close()

    @property
    def is_over(self) -> bool:
        """True if every wanted record was returned."""
        return not self._unread and self._ready.empty()

    async def next(self) -> Piece:
        """Return the next piece, of any partition; the caller is done with the previous one. Raises HttpRefusal."""
        if self._is_one_out:
            self._is_one_out = False
            self._ready.task_done()
        piece = await self._ready.get()
        self._is_one_out = True
        if isinstance(piece, HttpRefusal):
            raise piece
        return piece

    @property
    def _follows(self) -> bool:
        return self._wanted.ends is None

    def _is_at_end(self, place: TopicPartition) -> bool:
        ends = self._wanted.ends
        return ends is not None and self._next[place] >= ends[place]

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        if not self._is_closed:
            self._tasks.spawn(self._guarded(work, *arguments), "read over HTTP")

    async def _guarded(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a task. On an error, fail the reader, which would otherwise wait forever."""
        try:
            await work(*arguments)
        except Exception as error:
            _events.error("reader.failed", exc_info=error)
            await self._ready.put(HttpRefusal(500, FAILED, ErrorCode.unknown_server_error))

    async def _share_out(self, places: Sequence[TopicPartition], deadline: float) -> None:
        """Start reading each partition from its leader. A bounded reader fails after `deadline` without progress."""
        led = at_once(by_leader(places, self._context.image))
        for leader, of_leader in led.items():
            self._spawn(self._read_from, leader, of_leader, deadline)
        leaderless = [place for place in places if not any(place in of_leader for of_leader in led.values())]
        if leaderless:
            await self._later(leaderless, ErrorCode.leader_not_available, deadline)

    async def _later(self, places: Sequence[TopicPartition], code: ErrorCode, deadline: float) -> None:
        """Find the leaders again after RETRY_S, if the error is retriable."""
        known = self._context.image.topics_by_name
        # A leader may not have a new topic in its metadata yet.
        goes_by_itself = status_of(code) == NOT_NOW or code is ErrorCode.unknown_topic_or_partition
        if any(place.topic not in known for place in places):
            await self._ready.put(refusal_of(ErrorCode.unknown_topic_or_partition))
        elif not goes_by_itself or (not self._follows and self._now() > deadline):
            await self._ready.put(refusal_of(code))
        else:
            await asyncio.sleep(RETRY_S)
            self._spawn(self._share_out, places, deadline)

    async def _read_from(self, leader: int, places: Iterable[TopicPartition], deadline: float) -> None:
        """Read these partitions for as long as this broker leads them."""
        reading = list(places)
        connection: ClientConnection | None = None
        try:
            connection = await self._context.cluster.open(leader)
            while reading:
                starts = {place: self._next[place] for place in reading}
                fetched = await fetch(connection, starts, self._wanted.isolation, self._follows)
                if any(row.records for row in fetched):
                    deadline = self._now() + PATIENCE_S
                reading = await self._take(fetched, deadline)
        except (HungUp, TimeoutError, Malformed, Unanswered):
            self._spawn(self._later, reading, ErrorCode.leader_not_available, deadline)
        finally:
            if connection is not None:
                connection.close()

    async def _take(self, fetched: Sequence[Fetched], deadline: float) -> list[TopicPartition]:
        """Return the fetched records. Return the partitions to fetch next: those without new records first."""
        idle: list[TopicPartition] = []
        busy: list[TopicPartition] = []
        for row in fetched:
            if row.code is not ErrorCode.none and not self._has_lost_some(row):
                self._spawn(self._later, [row.place], row.code, deadline)
                continue
            start = self._next[row.place]
            async for piece in self._pieces(row):
                self._next[row.place] = piece.end
                await self._ready.put(piece)
            if self._is_at_end(row.place):
                # Not before its last piece is queued: otherwise `is_over` could be true too early.
                self._unread.discard(row.place)
            else:
                (idle if self._next[row.place] == start else busy).append(row.place)
        await asyncio.sleep(self._breath_s(fetched, is_idle=not busy))
        return idle + busy

    def _breath_s(self, fetched: Sequence[Fetched], *, is_idle: bool) -> float:
        if self._follows:
            # After an empty fetch, the leader has already waited.
            return PACE_S if 0 < sum(len(row.records) for row in fetched) < PACED_BYTES else 0
        return RETRY_S if is_idle else 0

    def _has_lost_some(self, row: Fetched) -> bool:
        """Return whether retention has deleted the next records to read."""
        return row.code is ErrorCode.offset_out_of_range and row.log_start > self._next[row.place]

    async def _pieces(self, row: Fetched) -> AsyncIterator[Piece]:
        """Yield the new records, each piece decoded after the previous one was taken. Raises Malformed."""
        place, start = row.place, self._next[row.place]
        if row.code is not ErrorCode.none:
            yield Piece(place, (), row.log_start, range(start, row.log_start))
            return
        ends, wanted = self._wanted.ends, self._wanted
        offsets = range(start, 1 << 63 if ends is None else ends[place])
        portions = Portions(
            row.records, offsets, wanted.key, wanted.records_max, row.aborted, with_markers=wanted.with_markers
        )
        decoding = self._context.decoding
        try:
            while not portions.is_over:
                portion = await next_usual(portions, decoding)
                if portion is not None:
                    yield self._piece(place, portion)
                    continue
                async with self._context.streams.large_record(self._taker):
                    yield self._piece(place, await next_portion(portions, decoding))
                    await self._ready.join()
        except CorruptBatch as damage:
            raise Malformed(f"a damaged batch of {place.topic}-{place.partition}: {damage}") from damage

    def _piece(self, place: TopicPartition, portion: Portion) -> Piece:
        records, end, damage = portion
        if damage is None:
            return Piece(place, records, end)
        _events.warning("records.undecodable", topic=place.topic, partition=place.partition, reason=damage)
        return Piece(place, (), end, range(self._next[place], end), damage)
