"""Fetch (1): committed record batches below the high watermark, immediately or as a long poll, with fetch sessions.

With read_committed, only batches below the last stable offset, and the aborted transactions among them (KIP-98). An
unknown isolation level is refused with INVALID_REQUEST; Kafka answers UNKNOWN_SERVER_ERROR.

Version notes: 5 adds the log start offset; 6 KAFKA_STORAGE_ERROR in place of NOT_LEADER_OR_FOLLOWER; 7 fetch sessions
(KIP-227); 9 the leader epoch (KIP-320); 11 the client's rack and the preferred read replica (KIP-392); 13 names topics
by id (KIP-516); 15 drops the replica id; 16 names the current leader where another broker leads (KIP-951); 17 and 18
have tagged fields of followers, which are ignored (KIP-853, KIP-1166).
"""

# On the hot path: a request is answered in the connection's callback if possible. Otherwise it becomes a long poll that
# wakes when one of its partitions changes. A response holds slices of segments; the connection reads them piece by
# piece as the client takes them.

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Work
from cordwood.cluster.kafka.client_throttle import ClientThrottle
from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.fetch_access import Find, decide_for, guarded
from cordwood.cluster.kafka.fetch_request import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    FetchRequest,
    read_fetch,
)
from cordwood.cluster.kafka.fetch_response import LEADERS_FROM, NOTHING, Row, encode, encode_error
from cordwood.cluster.kafka.fetch_sessions import (
    FULL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessions,
    PartitionKey,
    SessionNotFound,
    TopicsMixed,
    WrongSessionEpoch,
)
from cordwood.cluster.kafka.fetched_batches import may_be_there_soon, read, shown_watermark
from cordwood.cluster.kafka.leader_hints import FindLeader, Leader
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, READ, TOPIC, Right, Rights
from cordwood.cluster.kafka.shared_pieces import Shared
from cordwood.cluster.kafka.wire import Malformed, decoded_bytes
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.authorizer import Authorizer
from cordwood.cluster.tiering.reads import ArchiveReads, WantedRange
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks, report
from cordwood.storage.errors import DamagedLog, NotInMemory
from cordwood.storage.steps import Steps, at_once

KEY = ApiKey.FETCH
RIGHTS: Rights = (
    Right(READ, TOPIC),
    Right(CLUSTER_ACTION, CLUSTER, "in place of READ, if the request claims to be a replica's"),
)
STORAGE_ERROR_FROM = 6
"""The first version with KAFKA_STORAGE_ERROR."""
SMALL_REQUEST_BYTES = 256
LARGE_REQUEST_BYTES = 8 << 10
"""A larger request, of some hundred partitions or more, is decoded in time slices (`turns.py`)."""
PARTITIONS_AT_ONCE = 100
"""A fetch of more partitions is served in time slices (`turns.py`)."""
PARTITIONS_PER_STEP = 8
SLOW_DISK_S = 0.1
"""How long a fetch waits for all its disks. After that, a slow disk delays only the partitions of its log directory."""
READS_AHEAD_MAX = 256
"""Maximum number of running and queued read-aheads per log directory. Beyond it, a fetch does not wait for the disk."""
ABORTED_BYTES = 150
"""Memory of an aborted transaction and its part of the response."""
SHARED_BYTES_MAX = 16 << 10
"""Up to this size the batches of a response are read into memory; the rest is read as the client takes it."""


Nearest = Callable[[Partition, str, int], int | None]
"""Finds the preferred read replica: an in-sync follower in the client's rack that has the offset (KIP-392), or None."""


class FetchHandler:
    """The handler of Fetch requests."""

    def __init__(
        self,
        replicas: Replicas,
        sessions: FetchSessions,
        wall_clock: Callable[[], int],
        response_bytes_max: int,
        nearest: Nearest,
        find_leader: FindLeader,
        turns: Turns,
        authorizer: Authorizer | None = None,
        archive: ArchiveReads | None = None,
        throttle: ClientThrottle | None = None,
    ) -> None:
        self.throttle = throttle or ClientThrottle()
        self.archive = archive
        """None if this broker has no archive."""
        self.authorizer = authorizer
        """None if every client may do everything."""
        self.turns, self.tasks = turns, Tasks()
        self.replicas, self.response_bytes_max = replicas, response_bytes_max
        self.nearest, self.find_leader, self.shared = nearest, find_leader, Shared()
        self.reads_ahead: Counter[LogDirectory] = Counter()
        self._sessions, self._wall_clock = sessions, wall_clock

    def handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> Work | None:
        """Answer a request, or begin a long poll. Return the remaining work of a large request. Raises Malformed."""
        if head.version not in KEY.versions:
            raise Malformed(f"Fetch in version {head.version}, which is not supported")
        if slot.size > SMALL_REQUEST_BYTES and not slot.reserve(decoded_bytes(slot.size)):
            return None
        if slot.size > LARGE_REQUEST_BYTES:
            return partial(self._handle_large, head, slot.connection.keep(frame), slot)
        request = at_once(read_fetch(head, frame))
        if request.session_id and not slot.reserve(self._sessions.size_of(request.session_id)):
            return None
        self._begin(head, request, slot)
        return None

    async def close(self) -> None:
        """Cancel the requests that are still handled in slices or wait for a disk."""
        await self.tasks.close()

    async def _handle_large(self, head: RequestHead, frame: memoryview, slot: Slot) -> None:
        try:
            request = await self.turns.run(read_fetch(head, frame))
        finally:
            slot.connection.thaw(shrinks=True)
        slot.hold(self._sessions.size_of(request.session_id))
        self._begin(head, request, slot)

    def _begin(self, head: RequestHead, request: FetchRequest, slot: Slot) -> None:
        if request.isolation not in ISOLATION_LEVELS:
            self._refuse(head, slot, ErrorCode.invalid_request)
            return
        try:
            session, is_incremental = self._session(request, slot.connection, has_ids=head.version >= TOPIC_IDS_FROM)
        except SessionNotFound:
            self._refuse(head, slot, ErrorCode.fetch_session_id_not_found)
            return
        except WrongSessionEpoch:
            self._refuse(head, slot, ErrorCode.invalid_fetch_session_epoch)
            return
        except TopicsMixed:
            self._refuse(head, slot, ErrorCode.fetch_session_topic_id_error)
            return
        wanted = request.wanted if session is None else list(session.partitions.items())
        DelayedFetch(self, head, slot, request, wanted, session, is_incremental).begin()

    def find(self, key: PartitionKey, leader_epoch: int, rack: str) -> Partition:
        """Return the partition to read. A follower serves only clients that sent a rack (KIP-392).

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

    def leader_of(self, key: PartitionKey, listener: str) -> Leader | None:
        """Return the current leader of a partition; None if no leader is known that the client can reach."""
        topic, index = key
        name = topic if isinstance(topic, str) else self.replicas.name_of(topic)
        return None if name is None else self.find_leader(name, index, listener)

    def _refuse(self, head: RequestHead, slot: Slot, code: ErrorCode) -> None:
        slot.refused(int(code))
        slot.fill([encode_error(head, code)])

    def _session(
        self, request: FetchRequest, connection: Connection, *, has_ids: bool
    ) -> tuple[FetchSession | None, bool]:
        """Return the session of a request, if any, and whether the response is incremental (KIP-227).

        Raises SessionNotFound, WrongSessionEpoch or TopicsMixed.
        """
        now_ms = self._wall_clock()
        if request.session_epoch == FULL_EPOCH:
            self._sessions.end(request.session_id)
            return None, False
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.end(request.session_id)
            if not request.wanted:
                return None, False
            return self._sessions.create(connection, request.wanted, now_ms, has_ids=has_ids), False
        session = self._sessions.use(request.session_id, request.session_epoch, now_ms, has_ids=has_ids)
        self._sessions.change(session, request.wanted, request.forgotten)
        if not session.partitions:
            # As in Kafka, a session ends with its last partition; the response, without a session, tells the client.
            self._sessions.end(session.id)
            return None, False
        return session, True


NONE_COLD: frozenset[LogDirectory] = frozenset()
MISDIRECTED = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
"""A client that gets one of these has an outdated leader."""
NOT_READ = (*EXPECTED, NotInMemory)


class WatchedPartition:
    """One partition of a long poll. When the partition changes, only this partition is read again."""

    __slots__ = ("fetched", "key", "partition", "poll", "size")

    def __init__(
        self, poll: "DelayedFetch", partition: Partition, key: PartitionKey, fetched: FetchedPartition, size: int
    ) -> None:
        self.poll, self.partition, self.key, self.fetched = poll, partition, key, fetched
        self.size = size
        """Available bytes at the last read."""

    def wake(self) -> None:
        self.poll.moved(self)

    def fail(self, error: Exception) -> None:
        self.poll.fail(error)


class DelayedFetch:
    """One Fetch request from arrival to response: a long poll, Kafka's DelayedFetch.

    A fetch of many partitions runs in time slices (`turns.py`). Until a run ends, the poll is busy, and a change of a
    partition is only recorded.
    """

    __slots__ = (
        "_bytes_max", "_bytes_min", "_cold", "_fetching", "_find", "_has_missed", "_head", "_is_busy",
        "_is_done", "_is_incremental", "_is_last_chance", "_is_read_committed", "_is_replica", "_rack", "_session",
        "_size", "_slot", "_timer", "_wait_s", "_wanted", "_watched",
    )  # fmt: skip

    def __init__(
        self,
        fetching: FetchHandler,
        head: RequestHead,
        slot: Slot,
        request: FetchRequest,
        wanted: list[tuple[PartitionKey, FetchedPartition]],
        session: FetchSession | None,
        is_incremental: bool,
    ) -> None:
        self._fetching, self._head, self._slot = fetching, head, slot
        self._wanted, self._session, self._is_incremental = wanted, session, is_incremental
        self._rack, self._is_read_committed = request.rack, request.isolation == READ_COMMITTED
        self._is_replica = request.is_replica
        self._find: Find = fetching.find
        self._wait_s = request.wait_ms / 1000
        self._bytes_max = min(request.bytes_max, fetching.response_bytes_max)
        if fetching.throttle.is_active:
            identity = slot.connection.identity
            self._bytes_max = fetching.throttle.fetch_bytes_max(identity, head.client_id, self._bytes_max)
        self._bytes_min = min(request.bytes_min, self._bytes_max)
        self._timer: asyncio.TimerHandle | None = None
        self._watched: list[WatchedPartition] = []
        self._size = 0
        """Available bytes of all watched partitions, each at its last read."""
        self._is_last_chance = self._wait_s <= 0 or not wanted
        self._is_done = self._is_busy = self._has_missed = False
        self._cold: frozenset[LogDirectory] = NONE_COLD
        """Log directories that are not waited for: their read-ahead is in progress, or too many are queued."""

    def begin(self, *, is_enough: bool = False, may_wait: bool = False) -> None:
        """Read all partitions. Answer if there are enough bytes; otherwise keep waiting."""
        self._is_busy = True
        if (authorizer := self._fetching.authorizer) is not None:
            # Decided again at each attempt: an ACL may change while a request waits.
            identity = self._slot.connection.identity
            fetching = self._fetching
            decide = decide_for(authorizer, identity, fetching.replicas.name_of, is_replica=self._is_replica)
            self._find = guarded(fetching.find, decide)
        steps = self._attempt(is_enough, may_wait)
        if len(self._wanted) <= PARTITIONS_AT_ONCE and self._timer is not None and self._fetching.throttle.is_active:
            # The dispatcher counts the time of the first attempt.
            self._fetching.throttle.run(self._head, self._slot, steps)
        elif len(self._wanted) <= PARTITIONS_AT_ONCE:
            at_once(steps)
        else:
            self._fetching.tasks.spawn(self._in_turns(steps))

    def moved(self, spot: WatchedPartition) -> None:
        """Read a changed partition again, and answer if there are enough bytes."""
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
        """Update one partition's available bytes. Return whether the total reaches the request's minimum.

        Raises one of EXPECTED, and NotInMemory.
        """
        if len(self._watched) == 1:
            # The caller reads this only partition anyway.
            return False
        fetched = spot.fetched
        partition = self._fetching.find(spot.key, fetched.leader_epoch, self._rack)
        end = partition.last_stable_offset if self._is_read_committed else partition.high_watermark
        wanted = WantedRange(fetched.offset, fetched.bytes_max, end, with_aborted=False, wait=False)
        found = read(Row(spot.key), partition, wanted, self._fetching.archive)
        size = 0 if found is None else found.size
        self._size += size - spot.size
        spot.size = size
        return self._size >= self._bytes_min

    def _attempt(self, is_enough: bool, may_wait: bool) -> Steps[None]:
        """Answer if there are enough bytes, a row has an error, or the wait has ended.

        Otherwise watch the partitions.
        """
        while True:
            self._has_missed = False
            try:
                rows, size = yield from self._collect(may_wait, self._is_last_chance)
            except NotInMemory:
                # The poll stays busy until the disk is read.
                self._fetching.tasks.spawn(self._warm())
                return
            if not self._slot.connection.is_open:
                break
            must_answer = any(row.code or row.preferred_replica >= 0 or row.is_archived for row in rows)
            if size >= self._bytes_min or is_enough or self._is_last_chance or must_answer:
                self._leave()
                yield from self._answer(rows)
                return
            if self._timer is None:
                yield from self._watch(rows)
            if not self._has_missed:
                # Without a missed change `_watch` has not paused, so that the wait is not over either.
                self._is_busy = False
                return
        self._leave()

    def _watch(self, rows: list[Row]) -> Steps[None]:
        """Watch every partition that is found, until the request's maximum wait has passed."""
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
                # A partition may have changed between its read and its watch: read all of them again.
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
        """Read ahead in a thread per log directory. After SLOW_DISK_S, continue once one of them has read something."""
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
        """Read ahead in one log directory, then continue the fetch. Return whether the directory had any partition."""
        reads_ahead = self._fetching.reads_ahead
        reads_ahead[directory] += 1
        try:
            count: int = await directory.run_blocking(self._touch, directory)
        except Exception as error:
            report("the read-ahead of a FETCH failed", error)
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
        """Read the wanted slices of a log directory, in a thread. Return the number of its partitions."""
        count = 0
        for key, fetched in self._wanted:
            if self._is_done:
                break
            try:
                partition = self._fetching.find(key, fetched.leader_epoch, self._rack)
                if partition.directory is directory:
                    count += 1
                    end = partition.last_stable_offset if self._is_read_committed else partition.high_watermark
                    is_read_committed = self._is_read_committed
                    wanted = WantedRange(
                        fetched.offset, fetched.bytes_max, end, is_read_committed, wait=True, may_load=False
                    )
                    read(Row(key), partition, wanted, self._fetching.archive)
            except EXPECTED:
                continue
        return count

    def _collect(self, may_wait: bool, is_last_chance: bool) -> Steps[tuple[list[Row], int]]:
        """Return a row for every partition, and their total size.

        An empty result comes only from a leader that knows its high watermark (`known_high_watermark`); otherwise a
        client that reads to the end may see the log end go back.
        The first batch is returned even above the limits, so that a client with small limits makes progress (KIP-74).
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
                partition = self._find(key, fetched.leader_epoch, self._rack)
                log = partition.log
                row.high_watermark, row.log_start = shown_watermark(partition), log.log_start
                transactions = log.producers.transactions
                has_some = transactions.ongoing or transactions.replaced
                end = self._end_with_transactions(partition, row) if has_some else partition.high_watermark
                if self._rack and (nearer := self._fetching.nearest(partition, self._rack, fetched.offset)) is not None:
                    row.preferred_replica = nearer
                    continue
                room = self._bytes_max - size
                if fetched.offset >= end and may_be_there_soon(fetched.offset, partition):
                    if is_last_chance:
                        partition.known_high_watermark()
                    continue
                if room <= 0 and size:
                    continue
                wait = may_wait and partition.directory not in self._cold
                bytes_max = min(fetched.bytes_max, max(room, 0))
                wanted = WantedRange(fetched.offset, bytes_max, end, self._is_read_committed, wait)
                found = read(row, partition, wanted, self._fetching.archive)
                if found is not None and (found.size <= room or not size):
                    row.slice = found
                    size += found.size
            except NOT_READ as error:
                self._leave_out(row, partition, error)
        return rows, size

    def _end_with_transactions(self, partition: Partition, row: Row) -> int:
        """Return the end of the records that the client may read, and complete the row."""
        stable = partition.last_stable_offset
        row.last_stable = min(stable, row.high_watermark)
        return stable if self._is_read_committed else partition.high_watermark

    def _leave_out(self, row: Row, partition: Partition | None, error: Exception) -> None:
        """Complete the row of a partition that cannot be read now. Raises NotInMemory if a read-ahead must begin."""
        if isinstance(error, NotInMemory):
            if partition is None or partition.directory not in self._cold:
                raise error
            return
        row.code, row.high_watermark = int(code_of(error)), NOTHING
        if row.code == ErrorCode.kafka_storage_error and self._head.version < STORAGE_ERROR_FROM:
            # Older clients look for another leader on this code, as with Kafka. One that they do not know is fatal.
            row.code = int(ErrorCode.not_leader_or_follower)
        self._slot.refused(row.code)
        if row.code in MISDIRECTED and self._head.version >= LEADERS_FROM:
            row.leader = self._fetching.leader_of(row.key, self._slot.connection.listener)
        if partition is not None and isinstance(error, DamagedLog):
            partition.report_damage(error)

    def _answer(self, rows: list[Row]) -> Steps[None]:
        session = self._session
        session_id = NO_SESSION if session is None else session.id
        throttle, slot = self._fetching.throttle, self._slot
        if throttle.is_active and throttle.refuses_data(self._head, slot):
            slot.fill((yield from encode(self._head, session_id, [], slot.throttle_ms)))
            return
        shown = []
        room = SHARED_BYTES_MAX
        for number, row in enumerate(rows, 1):
            if session is None or self._has_changed(session, row) or not self._is_incremental:
                shown.append(row)
                if row.slice is not None and (room := room - row.slice.size) >= 0:
                    row.piece = self._fetching.shared.read(row.slice)
                    slot.hold(row.slice.size)
                if row.aborted:
                    slot.hold(len(row.aborted) * ABORTED_BYTES)
            if number % PARTITIONS_PER_STEP == 0:
                yield
        if throttle.is_active:
            throttle.fetched(self._head, slot, sum(0 if row.slice is None else row.slice.size for row in shown))
        slot.fill((yield from encode(self._head, session_id, shown, slot.throttle_ms)))

    def _has_changed(self, session: FetchSession, row: Row) -> bool:
        """Return whether an incremental response includes the partition, and record the state sent (KIP-227)."""
        known = session.partitions.get(row.key)
        if known is None:
            return False
        has_changed = (
            row.slice is not None
            or bool(row.code)
            or row.preferred_replica >= 0
            or known.high_watermark != row.high_watermark
            or known.log_start != row.log_start
        )
        # Every row without an error has a log start, so that the one that ends an error differs.
        known.high_watermark, known.log_start = row.high_watermark, NOTHING if row.code else row.log_start
        if row.slice is not None:
            # A partition that got data goes to the end of the session, so that no partition starves the others.
            session.partitions.move_to_end(row.key)
        return has_changed
