"""Follower's side of a leader's connection: fetched partitions, and reports of their flushed ends."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from cordwood.replication.channel import Channel, Dial
from cordwood.replication.follower import ImpossibleAnswer
from cordwood.replication.follower_role import CheckpointUnderWay, FollowerRole
from cordwood.replication.frames import (
    DIRECTORIES_MAX,
    STREAMS_PER_DIRECTORY,
    FlushReport,
    FollowRequest,
    Open,
    PushKind,
    PushRow,
    Start,
    Suspect,
    decode_push,
    directory_of,
    encode_follow,
    encode_leave,
    encode_open,
    encode_reports,
    encode_starts,
    encode_suspect,
    split_push,
)
from cordwood.replication.tasks import Tasks
from cordwood.replication.truncation import Truncation, Truncations
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.batch import in_parts
from cordwood.storage.errors import CorruptBatch, DamagedLog, StorageError, TruncationUnsynced
from cordwood.storage.steps import Steps, run_step

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

DIAL_TIMEOUT_S = 1.0
REDIAL_S = 0.1
ASK_AGAIN_S = 0.05
ASK_AGAIN_MAX_S = 2.0
ASK_AGAIN_GROWTH, GROWTHS_MAX = 1.25, 20
"""Backoff: a refused partition is requested again, a quarter later each time until data arrives."""
ASKED_PER_FRAME = 256
"""Partitions requested in one iteration of the event loop."""
REPORTED_PER_FRAME = 1024
"""Flushed ends reported in one iteration of the event loop: some 2 ms."""
ANSWER_S = 10.0
"""Time after which a requested partition without an answer is requested again."""
NO_STREAM_END = -1

ONE_STEP_BYTES = 4 << 10
"""A push of this length has some 40 batches at most. Usual ones are shorter, and are not looked into."""
STEP_COST = 512
"""Cost of one step of a larger push, in batches: some 2 ms."""
ROW_COST = 32
"""Cost of a row besides its batches, unless it has no more than watermarks: a log's first append makes its files."""
BYTES_PER_COST = 4 << 10
"""Bytes that take as long to be checked and written as a batch takes besides them."""
PART_BYTES = STEP_COST * BYTES_PER_COST // 2
"""Bytes of a row that are appended together: half of a step's cost."""
ROWS_PER_PART = 256
"""Rows that are decoded together, and partitions of one push that share a group commit."""

Address = tuple[str, int]
_events = structlog.get_logger("replication")


class LeaderConnection:
    """All partitions that this broker follows from one leader."""

    def __init__(
        self,
        leader: int,
        address_of: Callable[[int], Address | None],
        hello: Callable[[], Open],
        dial: Dial,
        end_of_tick: EndOfTickScheduler,
        wall_clock: Callable[[], int],
        truncations: Truncations,
        dial_timeout_s: float = DIAL_TIMEOUT_S,
    ) -> None:
        self._truncations, self._dial_timeout_s = truncations, dial_timeout_s
        self._leader, self._address_of, self._hello, self._dial = leader, address_of, hello, dial
        self._end_of_tick, self._wall_clock = end_of_tick, wall_clock
        self._loop = asyncio.get_running_loop()
        self._followings: dict[int, FollowerRole] = {}
        self._asking: dict[FollowerRole, None] = {}
        self._reporting: dict[FollowerRole, None] = {}
        self._starting: dict[FollowerRole, None] = {}
        self._leaving: list[int] = []
        self._discarded_bytes: Counter[int] = Counter()
        """Bytes that arrived for streams we had left, by log directory: the leader's windows need their credit back."""
        self._next_stream = 0
        self._channel: Channel | None = None
        self._wanted = asyncio.Event()
        self._tasks = Tasks()
        self._tasks.repeat(self._connect, f"fetcher of broker {leader}")

    def follow(self, partition: "Partition", refusals: int = 0) -> None:
        """Fetch a partition from its log end on, in its current leader epoch."""
        self._next_stream += 1
        following = FollowerRole(self, partition, self._number_of(partition), refusals)
        partition.following = following
        self._followings[following.stream] = following
        self._wanted.set()
        self._ask(following)

    def leave(self, following: FollowerRole) -> None:
        if self._followings.pop(following.stream, None) is not None:
            self._asking.pop(following, None)
            self._reporting.pop(following, None)
            self._starting.pop(following, None)
            self._discard(following.stream, following.uncredited_bytes)
            following.uncredited_bytes = 0
            self._leaving.append(following.stream)
            self._soon()
            if not self._followings:
                self._wanted.clear()

    def report(self, following: FollowerRole) -> None:
        self._reporting[following] = None
        self._soon()

    def start(self, following: FollowerRole) -> None:
        self._starting[following] = None
        self._soon()

    async def close(self) -> None:
        await self._tasks.close()
        if self._channel is not None:
            self._channel.close()

    def wake(self) -> None:
        """Send everything that is due at the end of an event-loop iteration."""
        channel = self._channel
        if channel is None:
            return
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            channel.push([encode_leave(leaving)])
        if self._asking:
            asking = self._first(self._asking, ASKED_PER_FRAME)
            channel.push([encode_follow(map(_request, asking))])
            self._loop.call_later(ANSWER_S, self._ask_again, channel, asking)
        if self._starting:
            starting, self._starting = self._starting, {}
            channel.push([encode_starts(Start(each.stream, each.partition.log.flushed_start) for each in starting)])
        if self._reporting or self._discarded_bytes:
            reporting: Iterable[FollowerRole] = self._reporting
            if len(self._reporting) > REPORTED_PER_FRAME:
                reporting = self._first(self._reporting, REPORTED_PER_FRAME)
            else:
                self._reporting = {}
            rows = [_report(following) for following in reporting]
            if self._discarded_bytes:
                for directory, size in self._discarded_bytes.items():
                    rows.append(FlushReport(directory * STREAMS_PER_DIRECTORY, NO_STREAM_END, size))
                self._discarded_bytes.clear()
            channel.push([encode_reports(rows)])

    def fail(self, error: Exception) -> None:
        if self._channel is not None:
            self._channel.close(f"replication from broker {self._leader} failed: {error!r}")

    def _number_of(self, partition: "Partition") -> int:
        """Return an unused stream number of the partition's log directory. The first of each is for no stream."""
        begin = partition.directory.number % DIRECTORIES_MAX * STREAMS_PER_DIRECTORY
        counted = range(1, STREAMS_PER_DIRECTORY)
        while (number := begin + counted[self._next_stream % len(counted)]) in self._followings:
            self._next_stream = self._next_stream + 1
        return number

    def _discard(self, stream: int, size: int) -> None:
        if size:
            self._discarded_bytes[directory_of(stream)] += size

    def _first(self, waiting: dict[FollowerRole, None], most: int) -> list[FollowerRole]:
        """Remove and return the first `most` of those that wait. The next event-loop iteration has the others."""
        first = list(islice(waiting, most))
        for following in first:
            del waiting[following]
        if waiting:
            self._soon()
        return first

    def _ask(self, following: FollowerRole) -> None:
        if following.partition.log.begins_anew:
            # Its role has changed since: nothing of the new log is on disk yet.
            self._try_later(following)
            return
        self._asking[following] = None
        self._soon()

    def _ask_again(self, channel: Channel, asked: Iterable[FollowerRole]) -> None:
        """Request again the partitions without an answer: a lost answer would be waited for forever."""
        for following in asked:
            if self._channel is channel and not following.is_answered:
                self._try_again(following)

    def _begin_anew(self, following: FollowerRole, refusals: int = 0) -> None:
        """Follow again, under a new stream number, so that frames in flight do not pass for an answer."""
        self.leave(following)
        self.follow(following.partition, refusals)

    def _received(self, frame: memoryview) -> Steps[None] | None:
        """Handle a PUSH frame, or the first step of a large one and return the others. Raises MalformedFrame."""
        if len(frame) > ONE_STEP_BYTES:
            steps = self._in_steps(frame)
            return None if run_step(steps) else steps
        now_ms = self._wall_clock()
        for row, data in decode_push(frame):
            following = self._followings.get(row.stream)
            if following is None:
                self._discard(row.stream, row.size)
                if row.size:
                    self._soon()
            else:
                self._take(following, row, data, now_ms)
        return None

    def _in_steps(self, frame: memoryview) -> Steps[None]:
        """Handle a large PUSH as if its rows, each in parts of whole batches, had arrived one after the other.

        What it appends is flushed together, after the last step. Nothing is appended once the connection has ended: on
        the next one, the streams begin again, under the same numbers and with other windows.
        """
        channel, now_ms, cost = self._channel, self._wall_clock(), 0
        unflushed: dict[Partition, None] = {}
        try:
            for rows in split_push(frame, ROWS_PER_PART):
                if len(unflushed) > ROWS_PER_PART:
                    _flush(unflushed)
                for row, data in rows:
                    for part, batches in in_parts(data, STEP_COST, PART_BYTES):
                        if cost >= STEP_COST:
                            yield
                            if self._channel is not channel:
                                return
                            cost = 0
                        cost += 1 + (ROW_COST + batches + len(part) // BYTES_PER_COST if part or row.kind else 0)
                        following = self._followings.get(row.stream)
                        if following is None:
                            self._discard(row.stream, len(part))
                            if part:
                                self._soon()
                        else:
                            self._take(following, row._replace(size=len(part)), part, now_ms, unflushed)
        finally:
            _flush(unflushed)

    def _take(
        self,
        following: FollowerRole,
        row: PushRow,
        data: memoryview,
        now_ms: int,
        unflushed: "dict[Partition, None] | None" = None,
    ) -> None:
        """Handle one row of a PUSH. An error ends that stream alone. `unflushed` is that of `replicate`."""
        partition = following.partition
        following.is_answered = True
        try:
            self._follow_answer(following, row, data, now_ms, unflushed)
        except (CheckpointUnderWay, TruncationUnsynced):
            self._interrupt(following)
        except CorruptBatch as corrupt:
            _events.error("batch.unsound", topic=partition.topic, partition=partition.index, leader=self._leader,
                          offset=partition.log.log_end, reason=str(corrupt))  # fmt: skip
            self._complain(following)
            self._interrupt(following)
        except DamagedLog as damage:
            partition.report_damage(damage)
            self._interrupt(following)
        except ImpossibleAnswer as impossible:
            _events.error("leader.impossible", topic=partition.topic, partition=partition.index, leader=self._leader,
                          reason=str(impossible))  # fmt: skip
            self._interrupt(following)
        except (StorageError, OSError) as error:
            reason = str(partition.directory.write_failed(error))
            _events.error("replica.not_written", topic=partition.topic, partition=partition.index, error=reason)
            self._interrupt(following)
        except Exception as error:
            partition.fail(error)

    def _follow_answer(
        self,
        following: FollowerRole,
        row: PushRow,
        data: memoryview,
        now_ms: int,
        unflushed: "dict[Partition, None] | None",
    ) -> None:
        match row.kind:
            case PushKind.DATA | PushKind.DATA_WITH_GAPS:
                if row.size:
                    following.refusals = 0
                has_gaps = row.kind == PushKind.DATA_WITH_GAPS
                following.replicate(data, row.first, row.second, now_ms, may_have_gaps=has_gaps, unflushed=unflushed)
            case PushKind.DIFFERS:
                self._truncate(following, following.truncation(row.first, row.second))
            case PushKind.TOO_OLD if row.first:
                self._begin_after_archive(following, row.second - row.first, row.second)
            case PushKind.TOO_OLD:
                self._truncate(following, following.full_truncation(row.second))
            case PushKind.REFUSED:
                self._interrupt(following)

    def _truncate(self, following: FollowerRole, truncation: Truncation) -> None:
        """Leave the stream and truncate: frames in flight must not be appended before that."""
        self.leave(following)
        self._truncations.add(
            truncation, lambda is_truncated: self._truncation_ended(following, is_truncated=is_truncated)
        )

    def _begin_after_archive(self, following: FollowerRole, log_start: int, offset: int) -> None:
        """Begin the log again at `offset`. The archive has the state of the records from `log_start` up to there."""
        if not 0 <= log_start < offset:
            raise ImpossibleAnswer(f"a log from offset {log_start} on that begins at {offset}")
        self.leave(following)
        self._tasks.spawn(self._learn_beginning(following, log_start, offset))

    async def _learn_beginning(self, following: FollowerRole, log_start: int, offset: int) -> None:
        partition = following.partition
        try:
            before = await partition.context.archive.beginning(partition, log_start, offset)
            if partition.following is following and not partition.is_offline:
                self._truncate(following, following.full_truncation(offset, before))
        except (CheckpointUnderWay, ImpossibleAnswer, StorageError, OSError) as error:
            _events.warning("archive.not_read", topic=partition.topic, partition=partition.index, reason=str(error))
            self._try_later(following)
        except Exception as error:
            partition.fail(error)

    def _truncation_ended(self, following: FollowerRole, *, is_truncated: bool) -> None:
        if not is_truncated:
            self._try_later(following)
        elif following.partition.following is following:
            # Otherwise the replica was given another role while the truncation was being flushed.
            self._begin_anew(following)

    def _complain(self, following: FollowerRole) -> None:
        """Report an unsound batch. The leader verifies its own log; this broker requests the same batch again later."""
        if self._channel is not None:
            self._channel.push([encode_suspect(Suspect(following.stream, following.partition.log.log_end))])

    def _interrupt(self, following: FollowerRole) -> None:
        """Leave the stream and ask again later: batches in flight must not be appended before the missing one."""
        self.leave(following)
        self._try_later(following)

    def _try_later(self, following: FollowerRole) -> None:
        delay_s = ASK_AGAIN_S * ASK_AGAIN_GROWTH ** min(following.refusals, GROWTHS_MAX)
        delay_s = min(delay_s, ASK_AGAIN_MAX_S)
        self._loop.call_later(delay_s, self._try_again, following)

    def _try_again(self, following: FollowerRole) -> None:
        if following.partition.following is following and not following.partition.is_offline:
            self._begin_anew(following, following.refusals + 1)

    async def _connect(self) -> None:
        """Stay connected as long as the leader has an address and partitions to follow."""
        await self._wanted.wait()
        address = self._address_of(self._leader)
        if address is not None:
            try:
                async with asyncio.timeout(self._dial_timeout_s):
                    channel = await self._dial(*address, self._received)
            except (OSError, TimeoutError):
                pass
            else:
                await self._use(channel)
        await asyncio.sleep(REDIAL_S)

    async def _use(self, channel: Channel) -> None:
        """Introduce this broker, request all partitions, and return when the connection ends."""
        closed = asyncio.Event()
        channel.on_closed = closed.set
        self._channel = channel
        self._leaving.clear()
        self._reporting.clear()
        self._starting.clear()
        self._discarded_bytes.clear()
        channel.push([encode_open(self._hello())])
        for following in list(self._followings.values()):
            following.uncredited_bytes = 0
            self._ask(following)
        try:
            if channel.is_open:
                await closed.wait()
        finally:
            self._channel = None
            channel.close()

    def _soon(self) -> None:
        self._end_of_tick.due(self)


def _flush(unflushed: "dict[Partition, None]") -> None:
    """Schedule the flush of partitions, and clear them."""
    for partition in unflushed:
        partition.schedule_flush()
    unflushed.clear()


def _request(following: FollowerRole) -> FollowRequest:
    partition = following.partition
    log = partition.log
    return FollowRequest(
        following.stream,
        partition.topic_id,
        partition.index,
        following.leader_epoch,
        log.log_end,
        log.epochs.latest,
        partition.ack_end,
        log.flushed_start,
    )


def _report(following: FollowerRole) -> FlushReport:
    credit, following.uncredited_bytes = following.uncredited_bytes, 0
    return FlushReport(following.stream, following.partition.ack_end, credit)


class LeaderConnections:
    """One connection for each broker that leads a partition of this broker."""

    def __init__(self, make: Callable[[int], LeaderConnection]) -> None:
        self._make = make
        self._by_leader: dict[int, LeaderConnection] = {}

    def follow(self, partition: "Partition", leader: int) -> None:
        """Follow a partition in its current leader epoch."""
        leader_connection = self._by_leader.get(leader)
        if leader_connection is None:
            leader_connection = self._by_leader[leader] = self._make(leader)
        leader_connection.follow(partition)

    async def close(self) -> None:
        await asyncio.gather(*(leader_connection.close() for leader_connection in self._by_leader.values()))
