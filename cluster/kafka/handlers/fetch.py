"""Fetch: committed batches out of logs, at once or as soon as there are enough of them."""

# On the hot path: the request is answered in the connection's callback where it can be, and otherwise becomes a long
# poll, woken when one of its partitions moves. What it returns are slices of segments, which the connection reads piece
# by piece as the client takes them.

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v16 import FetchResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.fetch_request import FetchRequest, read_fetch
from cordwood.cluster.kafka.fetch_response import NOTHING, Row, encode, encode_error
from cordwood.cluster.kafka.fetch_sessions import (
    FULL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSessions,
    PartitionKey,
    Session,
    SessionNotFound,
    WrongSessionEpoch,
)
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.slot import Slot
from cordwood.cluster.kafka.turns import Steps, Turns, at_once
from cordwood.cluster.kafka.wire import decoded_bytes
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition, PartitionRefused, Refusal
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks, report
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.segment import NotInMemory, Segment
from cordwood.storage.slices import Slice

KEY, VERSIONS = ApiKey.FETCH, range(4, 17)
SMALL_REQUEST_BYTES = 256
LARGE_REQUEST_BYTES = 8 << 10
"""A still larger one, of some hundred partitions or more, is read in slices of the loop's time."""
PARTITIONS_AT_ONCE = 100
"""A fetch of more partitions is served in slices of the loop's time."""
PARTITIONS_PER_STEP = 8
SLOW_DISK_S = 0.1
"""A disk that takes longer holds up only what is asked of its log directory."""
READS_AHEAD_MAX = 256
"""Of one log directory, under way or waiting for a thread: beyond these, a fetch no longer waits for its disk."""
SHARED_BYTES_MAX = 16 << 10
"""Up to here an answer is one piece of memory; more is read as the client takes it."""


async def handle(request: FetchRequest, call: Call) -> FetchResponse:
    """Never called: `FetchHandler` answers in the connection's callback."""
    raise NotImplementedError


Nearest = Callable[[Partition, str, int], int | None]
"""The in-sync follower in a client's rack that has the offset it wants; None where it is best served here (KIP-392)."""


class Shared:
    """The last short stretch of a log that was read, for the others who are to get the same in this turn of the loop.

    For no longer: the log may be cut, and others have come to stand there.
    """

    def __init__(self) -> None:
        self._place: tuple[Segment, int, int] | None = None
        self._piece = b""

    def read(self, found: Slice) -> bytes | None:
        """All of it; None where it is to be read as it is sent."""
        place = (found.segment, found.start, found.stop)
        if self._place == place:
            return self._piece
        try:
            piece = bytes(found.segment.read(found.start, found.stop, wait=False))
        except (NotInMemory, StorageError):
            return None
        if self._place is None:
            asyncio.get_running_loop().call_soon(self._forget)
        self._place, self._piece = place, piece
        return piece

    def _forget(self) -> None:
        self._place, self._piece = None, b""


class FetchHandler:
    """The broker's Fetch API."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: FetchSessions,
        wall_clock: Callable[[], int],
        response_bytes_max: int,
        nearest: Nearest,
        turns: Turns,
    ) -> None:
        self.turns, self.tasks = turns, Tasks()
        self.replicas, self.response_bytes_max = replicas, response_bytes_max
        self.nearest, self.shared = nearest, Shared()
        self.reads_ahead: Counter[LogDirectory] = Counter()
        self._sessions, self._wall_clock = sessions, wall_clock

    def handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> Coroutine[Any, Any, None] | None:
        """Answer now, or begin a long poll. Of a large request the rest is returned. Raises Malformed."""
        if slot.size > SMALL_REQUEST_BYTES and not slot.reserve(decoded_bytes(slot.size)):
            return None
        if slot.size > LARGE_REQUEST_BYTES:
            return self._handle_large(head, slot.connection.keep(frame), slot)
        request = at_once(read_fetch(head, frame))
        if request.session_id and not slot.reserve(self._sessions.size_of(request.session_id)):
            return None
        self._begin(head, request, slot)
        return None

    async def _handle_large(self, head: RequestHead, frame: memoryview, slot: Slot) -> None:
        try:
            request = await self.turns.run(read_fetch(head, frame))
        finally:
            slot.connection.thaw(shrinks=True)
        slot.hold(self._sessions.size_of(request.session_id))
        self._begin(head, request, slot)

    def _begin(self, head: RequestHead, request: FetchRequest, slot: Slot) -> None:
        try:
            session, is_incremental = self._session(request, slot.connection)
        except SessionNotFound:
            self._refuse(head, slot, ErrorCode.fetch_session_id_not_found)
            return
        except WrongSessionEpoch:
            self._refuse(head, slot, ErrorCode.invalid_fetch_session_epoch)
            return
        wanted = request.wanted if session is None else list(session.partitions.items())
        DelayedFetch(self, head, slot, request, wanted, session, is_incremental).begin()

    def find(self, key: PartitionKey, leader_epoch: int, rack: str) -> Partition:
        """The partition to read; of one that another broker leads, only by a client that looks for replicas near it.

        Raises PartitionRefused.
        """
        topic, index = key
        if not isinstance(topic, str):
            name = self.replicas.name_of(topic)
            if name is None:
                raise PartitionRefused(Refusal.UNKNOWN_ID)
            topic = name
        find = self.replicas.readable if rack else self.replicas.led
        return find(topic, index, leader_epoch)

    def _refuse(self, head: RequestHead, slot: Slot, code: ErrorCode) -> None:
        slot.refused(int(code))
        slot.fill([encode_error(head, code)])

    def _session(self, request: FetchRequest, connection: Connection) -> tuple[Session | None, bool]:
        """The session that a request begins, continues or does without, and whether only changes are answered."""
        now_ms = self._wall_clock()
        if request.session_epoch == FULL_EPOCH:
            self._sessions.end(request.session_id)
            return None, False
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.end(request.session_id)
            return (self._sessions.create(connection, request.wanted, now_ms) if request.wanted else None), False
        session = self._sessions.use(request.session_id, request.session_epoch, now_ms)
        self._sessions.change(session, request.wanted, request.forgotten)
        return session, True


NONE_COLD: frozenset[LogDirectory] = frozenset()
NOT_READ = (*EXPECTED, NotInMemory)


class WatchedPartition:
    """One partition as a long poll watches it. When it moves, it is looked at alone."""

    __slots__ = ("fetched", "key", "partition", "poll", "size")

    def __init__(
        self, poll: "DelayedFetch", partition: Partition, key: PartitionKey, fetched: FetchedPartition, size: int
    ) -> None:
        self.poll, self.partition, self.key, self.fetched = poll, partition, key, fetched
        self.size = size
        """Bytes that it had for the client when it was looked at last."""

    def wake(self) -> None:
        self.poll.moved(self)

    def fail(self, error: Exception) -> None:
        self.poll.fail(error)


class DelayedFetch:
    """One Fetch request, from its arrival to its answer.

    Of many partitions, all that is done is done in slices of the loop's time (`turns.py`): meanwhile the poll is busy,
    and what moves then is noted.
    """

    __slots__ = (
        "_bytes_max", "_bytes_min", "_cold", "_fetching", "_has_missed", "_head", "_is_busy", "_is_done",
        "_is_incremental", "_is_last_chance", "_rack", "_session", "_size", "_slot", "_timer", "_wait_s", "_wanted",
        "_watched",
    )  # fmt: skip

    def __init__(
        self,
        fetching: FetchHandler,
        head: RequestHead,
        slot: Slot,
        request: FetchRequest,
        wanted: list[tuple[PartitionKey, FetchedPartition]],
        session: Session | None,
        is_incremental: bool,
    ) -> None:
        self._fetching, self._head, self._slot = fetching, head, slot
        self._wanted, self._session, self._is_incremental = wanted, session, is_incremental
        self._rack = request.rack
        self._wait_s = request.wait_ms / 1000
        self._bytes_max = min(request.bytes_max, fetching.response_bytes_max)
        self._bytes_min = min(request.bytes_min, self._bytes_max)
        self._timer: asyncio.TimerHandle | None = None
        self._watched: list[WatchedPartition] = []
        self._size = 0
        """Bytes of all that is watched, each as it was looked at last."""
        self._is_last_chance = self._wait_s <= 0 or not wanted
        self._is_done = self._is_busy = self._has_missed = False
        self._cold: frozenset[LogDirectory] = NONE_COLD
        """Those whose disks are reading what is asked of them, and may take any time."""

    def begin(self, *, is_enough: bool = False, may_wait: bool = False) -> None:
        """Answer if there is enough, or go on waiting."""
        self._is_busy = True
        steps = self._attempt(is_enough, may_wait)
        if len(self._wanted) <= PARTITIONS_AT_ONCE:
            at_once(steps)
        else:
            self._fetching.tasks.spawn(self._in_turns(steps))

    def moved(self, spot: WatchedPartition) -> None:
        """A partition has moved: answer if that makes enough."""
        if not self._slot.connection.is_open:
            self._leave()
        elif self._is_busy:
            self._has_missed = True
        elif not self._is_done:
            try:
                is_enough = self._grow(spot)
            except NOT_READ:
                self.begin()
            else:
                if is_enough or len(self._watched) == 1:
                    self.begin(is_enough=is_enough)

    def fail(self, error: Exception) -> None:
        self._leave()
        self._slot.connection.close(f"FETCH failed: {error!r}")

    async def _in_turns(self, steps: Steps[None]) -> None:
        try:
            await self._fetching.turns.run(steps)
        except Exception as error:
            report("a FETCH of many partitions failed", error)
            self.fail(error)

    def _expire(self) -> None:
        self._is_last_chance = True
        if not self._is_done and not self._is_busy:
            self.begin()

    def _grow(self, spot: WatchedPartition) -> bool:
        """Whether there is enough with what has come for one partition.

        Raises one of EXPECTED, and NotInMemory.
        """
        if len(self._watched) == 1:
            # All that there is is about to be looked at.
            return False
        fetched = spot.fetched
        partition = self._fetching.find(spot.key, fetched.leader_epoch, self._rack)
        found = partition.log.slice(fetched.offset, fetched.bytes_max, partition.high_watermark, wait=False)
        size = 0 if found is None else found.size
        self._size += size - spot.size
        spot.size = size
        return self._size >= self._bytes_min

    def _attempt(self, is_enough: bool, may_wait: bool) -> Steps[None]:
        """Answer if there is enough, something went wrong, or this is the last chance; otherwise wait for news."""
        while True:
            self._has_missed = False
            try:
                rows, size = yield from self._collect(may_wait, self._is_last_chance)
            except NotInMemory:
                # It stays busy until the disk has been read.
                asyncio.get_running_loop().create_task(self._warm())
                return
            if not self._slot.connection.is_open:
                break
            is_news = any(row.code or row.preferred_replica >= 0 for row in rows)
            if size >= self._bytes_min or is_enough or self._is_last_chance or is_news:
                self._leave()
                yield from self._answer(rows)
                return
            if self._timer is None:
                yield from self._watch(rows)
            if not self._has_missed and not self._is_last_chance:
                self._is_busy = False
                return
        self._leave()

    def _watch(self, rows: list[Row]) -> Steps[None]:
        """Wait for news of every partition that could be found."""
        self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._expire)
        for number, ((key, fetched), row) in enumerate(zip(self._wanted, rows, strict=True), 1):
            try:
                partition = self._fetching.find(key, fetched.leader_epoch, self._rack)
            except PartitionRefused:
                continue
            spot = WatchedPartition(self, partition, key, fetched, 0 if row.slice is None else row.slice.size)
            self._size += spot.size
            partition.watchers[spot] = None
            self._watched.append(spot)
            if number % PARTITIONS_PER_STEP == 0:
                # What has moved since it was looked at is news that came before the watch.
                self._has_missed = True
                yield

    def _leave(self) -> None:
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
        for spot in self._watched:
            spot.partition.watchers.pop(spot, None)
        self._watched.clear()

    async def _warm(self) -> None:
        """Have the disks read what is asked for, beside the loop, then go on with what those have that answered."""
        fetching, was_cold = self._fetching, self._cold
        self._cold = frozenset(fetching.replicas.directories)
        reads = [
            fetching.tasks.spawn(self._read_ahead(directory))
            for directory in self._cold - was_cold
            if fetching.reads_ahead[directory] < READS_AHEAD_MAX
        ]
        done, slow = await asyncio.wait(reads, timeout=SLOW_DISK_S) if reads else (set(), set())
        while slow and not any(read.result() for read in done):
            more, slow = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        if self._slot.connection.is_open and not self._is_done:
            self.begin(may_wait=True)

    async def _read_ahead(self, directory: LogDirectory) -> bool:
        """Whether there was anything to be read in the directory. A read that comes late goes on by itself."""
        reads_ahead = self._fetching.reads_ahead
        reads_ahead[directory] += 1
        try:
            count: int = await directory.run_blocking(self._touch, directory)
        except Exception as error:
            report("what a FETCH asks for could not be read ahead", error)
            self.fail(error)
            return True
        finally:
            reads_ahead[directory] -= 1
        self._cold -= {directory}
        if self._is_busy:
            self._has_missed = True
        elif not self._is_done and self._slot.connection.is_open:
            self.begin(may_wait=True)
        return count > 0

    def _touch(self, directory: LogDirectory) -> int:
        """In a thread: read what is wanted of a directory's partitions. Return how many these are."""
        count = 0
        for key, fetched in self._wanted:
            if self._is_done:
                break
            try:
                partition = self._fetching.find(key, fetched.leader_epoch, self._rack)
                if partition.directory is directory:
                    count += 1
                    partition.log.slice(fetched.offset, fetched.bytes_max, partition.high_watermark)
            except EXPECTED:
                continue
        return count

    def _collect(self, may_wait: bool, is_last_chance: bool) -> Steps[tuple[list[Row], int]]:
        """A row for every partition, and how many bytes they hold together.

        "Nothing yet" is said only by a leader that knows how far all is committed: whoever reads to the end would take
        an end for it that has been passed before.
        The first batch is returned whatever its size, so that a client with small limits still gets on (KIP-74).
        """
        rows: list[Row] = []
        size = 0
        partition: Partition | None = None
        for key, fetched in self._wanted:
            row = Row(key)
            if len(rows) % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield
            rows.append(row)
            try:
                partition = self._fetching.find(key, fetched.leader_epoch, self._rack)
                log = partition.log
                watermark = partition.high_watermark
                row.high_watermark, row.log_start = _told_watermark(partition), log.log_start
                if self._rack and (nearer := self._fetching.nearest(partition, self._rack, fetched.offset)) is not None:
                    row.preferred_replica = nearer
                    continue
                room = self._bytes_max - size
                if fetched.offset >= watermark and _may_be_there_soon(fetched.offset, partition):
                    if is_last_chance:
                        partition.known_watermark()
                    continue
                if room <= 0 and size:
                    continue
                wait = may_wait and partition.directory not in self._cold
                found = log.slice(fetched.offset, min(fetched.bytes_max, max(room, 0)), watermark, wait=wait)
                if found is not None and (found.size <= room or not size):
                    row.slice = found
                    size += found.size
            except NOT_READ as error:
                self._leave_out(row, partition, error)
        return rows, size

    def _leave_out(self, row: Row, partition: Partition | None, error: Exception) -> None:
        """A partition of which nothing can be read now. Raises NotInMemory where its disk is still to be asked."""
        if isinstance(error, NotInMemory):
            if partition is None or partition.directory not in self._cold:
                raise error
            return
        row.code, row.high_watermark = int(code_of(error)), NOTHING
        self._slot.refused(row.code)
        if partition is not None and isinstance(error, DamagedLog):
            partition.damaged(error)

    def _answer(self, rows: list[Row]) -> Steps[None]:
        session = self._session
        session_id = NO_SESSION if session is None else session.id
        told = []
        room = SHARED_BYTES_MAX
        for number, row in enumerate(rows, 1):
            if session is None or self._is_news(session, row) or not self._is_incremental:
                told.append(row)
                if row.slice is not None and (room := room - row.slice.size) >= 0:
                    row.piece = self._fetching.shared.read(row.slice)
                    self._slot.hold(row.slice.size)
            if number % PARTITIONS_PER_STEP == 0:
                yield
        self._slot.fill((yield from encode(self._head, session_id, told)))

    def _is_news(self, session: Session, row: Row) -> bool:
        """Whether the client has to be told of the partition; it is then taken to know it (KIP-227)."""
        known = session.partitions.get(row.key)
        if known is None:
            return False
        is_news = (
            row.slice is not None
            or bool(row.code)
            or row.preferred_replica >= 0
            or known.had_error
            or known.high_watermark != row.high_watermark
            or known.log_start != row.log_start
        )
        known.high_watermark, known.log_start, known.had_error = row.high_watermark, row.log_start, bool(row.code)
        if row.slice is not None:
            # Whoever got data goes last the next time, so that no partition starves the others.
            session.partitions.move_to_end(row.key)
        return is_news


def _told_watermark(partition: Partition) -> int:
    """NOTHING from a leader that has only just begun: to the client what it knows could be a step back."""
    try:
        return partition.known_watermark()
    except PartitionRefused:
        return NOTHING


def _may_be_there_soon(offset: int, partition: Partition) -> bool:
    """Whether a client may have got as far elsewhere: a follower lags, and so does a leader that has just begun."""
    log = partition.log
    return offset >= log.log_start and (offset <= log.log_end or not partition.is_leader)
