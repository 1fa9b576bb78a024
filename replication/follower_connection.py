"""Leader's side of a follower's connection: replica streams, flow control, throttling of catch-up.

The leader pushes a batch as soon as it is in memory, before its own sync. More than one push may be in flight. The
follower reports its flushed end after each flush, without a request. So the disks of all replicas work at the same time
(docs/adr/0012).
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from cordwood.replication.channel import Channel, Chunk
from cordwood.replication.follower import first_difference
from cordwood.replication.frames import (
    FOLLOWED_MAX,
    FlushReport,
    FollowRequest,
    MalformedFrame,
    Open,
    PushKind,
    PushRow,
    Start,
    Suspect,
    directory_of,
    encode_push,
)
from cordwood.replication.leader import ImpossibleReport
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.tasks import Tasks
from cordwood.replication.throttle import Charge, ReplicationThrottle, wait_s
from cordwood.replication.token_bucket import TokenBucket
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.replication.windows import PUSH_BYTES, BytesInFlight, ImpossibleCredit, Push, PushWindow
from cordwood.storage.errors import DamagedLog, NotInMemory, OffsetOutOfRange, StorageError
from cordwood.storage.log import Log
from cordwood.storage.types import NO_EPOCH

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition
    from cordwood.replication.replicas import Replicas

SHARE_BYTES = 64 << 10
"""Smallest share of a stream in a push while other streams wait: smaller reads would cost more than they share."""
STREAMS_PER_PUSH = 128
"""Streams of a push or a part, whose batches are collected in one step of the event loop: some 3 ms."""
SEEN_PER_STREAM = 16
"""Waiting streams that are looked through for each stream of a push: those of replicas in sync come first."""
LOOK_ON_S = 0.01
"""Time until others are looked through, if limits hold back all that were."""
BEGUN_PER_STEP = 64
"""Streams begun in one iteration of the event loop: a follower of thousands of partitions asks for all at once."""
WATERMARKS_PER_STEP = 1024
WATERMARK_DELAY_S = 0.01
"""Longest time that a high watermark waits for data to be sent with."""

_events = structlog.get_logger("replication")


@dataclass(frozen=True, slots=True)
class FollowerLimits:
    """Limits for followers outside the ISR: bytes per second of each, and the throttle of those being added."""

    catchup_bytes_per_second: int
    throttle: ReplicationThrottle = field(default_factory=ReplicationThrottle)


class ReplicaStream:
    """Replication of one partition to one follower, from `sent_end` on, in one leader epoch."""

    __slots__ = (
        "connection", "directory", "id", "in_flight", "is_prefetching", "leader", "leader_epoch", "partition",
        "sent_end", "sent_start", "sent_watermark",
    )  # fmt: skip

    def __init__(
        self,
        connection: "FollowerConnection",
        leader: LeaderRole,
        follow: FollowRequest,
        directory: "FollowerDirectory",
    ) -> None:
        self.id, self.connection, self.directory = follow.stream, connection, directory
        self.leader, self.partition = leader, leader.partition
        self.leader_epoch, self.sent_end = follow.leader_epoch, follow.log_end
        self.sent_watermark = self.sent_start = -1
        self.in_flight: BytesInFlight = {}
        self.is_prefetching = False

    def schedule_push(self) -> None:
        """Schedule a push after an append to the partition's log."""
        self.connection.schedule_data(self)

    def committed(self) -> None:
        """Schedule a push after the partition's high watermark or log start offset has moved."""
        self.connection.schedule_watermark(self)

    def end(self) -> None:
        """End the stream: this broker no longer leads the partition. The follower gets that from the metadata."""
        self.connection.forget(self)


class FollowerDirectory:
    """Streams with data for one log directory of a follower, and its window."""

    __slots__ = ("window", "with_data")

    def __init__(self) -> None:
        self.window = PushWindow()
        self.with_data: dict[ReplicaStream, None] = {}


class FollowerConnection:
    """Connection of one follower."""

    def __init__(
        self,
        channel: Channel,
        hello: Open,
        replicas: "Replicas",
        end_of_tick: EndOfTickScheduler,
        limits: FollowerLimits,
    ) -> None:
        self.broker_id, self.broker_epoch = hello.broker_id, hello.broker_epoch
        self._channel, self._replicas, self._end_of_tick = channel, replicas, end_of_tick
        self._throttle = limits.throttle
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._catchup = TokenBucket(limits.catchup_bytes_per_second, PUSH_BYTES, tokens=PUSH_BYTES, at=now)
        self._streams: dict[int, ReplicaStream] = {}
        self._to_begin: dict[int, FollowRequest] = {}
        """Requested streams that have not begun yet, by stream number."""
        self._directories: dict[int, FollowerDirectory] = {}
        """By the number of the follower's log directory."""
        self._with_new_watermark: dict[ReplicaStream, None] = {}
        self._answers: list[PushRow] = []
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_at = 0.0
        self._tasks = Tasks()

    def close(self) -> None:
        """End all streams, after the connection has ended."""
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._throttle.forget(self)
        self._to_begin.clear()
        for stream in list(self._streams.values()):
            self.forget(stream)

    def follow(self, rows: list[FollowRequest]) -> None:
        """Begin the requested streams, or begin them again from another offset; of many the first ones now.

        Raises MalformedFrame.
        """
        is_first = not self._to_begin
        for row in rows:
            if (known := self._streams.get(row.stream)) is not None:
                self.forget(known)
            self._to_begin[row.stream] = row
        if len(self._to_begin) + len(self._streams) > FOLLOWED_MAX:
            raise MalformedFrame(f"more than {FOLLOWED_MAX} partitions are followed")
        if is_first:
            self._begin_some()
        self._soon()

    def leave(self, ids: list[int]) -> None:
        for stream_id in ids:
            self._to_begin.pop(stream_id, None)
            stream = self._streams.get(stream_id)
            if stream is not None:
                self.forget(stream)

    def reported(self, rows: list[FlushReport]) -> None:
        """Record the flushed ends of a follower. Raises MalformedFrame."""
        now = self._loop.time()
        for stream_id, flushed_end, size in rows:
            stream = self._streams.get(stream_id)
            window = self._directory(stream_id).window if stream is None else stream.directory.window
            try:
                window.reported(size, window.of_ended_streams if stream is None else stream.in_flight)
            except ImpossibleCredit as impossible:
                raise MalformedFrame(str(impossible)) from impossible
            if (waiting := self._to_begin.get(stream_id)) is not None and flushed_end >= 0:
                self._to_begin[stream_id] = waiting._replace(flushed_end=flushed_end)
            elif stream is not None and flushed_end >= 0:
                try:
                    stream.leader.follower_flushed(self.broker_id, stream.leader_epoch, flushed_end, now)
                except Exception as error:
                    self._end(stream, error)
        for directory in self._directories.values():
            if directory.with_data:
                self._soon()
                break

    def starts_flushed(self, rows: list[Start]) -> None:
        """Record the log start offsets that the follower has on disk."""
        for stream_id, log_start in rows:
            if (waiting := self._to_begin.get(stream_id)) is not None:
                self._to_begin[stream_id] = waiting._replace(log_start=log_start)
            stream = self._streams.get(stream_id)
            if stream is not None:
                with stream.partition.contained():
                    stream.leader.follower_start_flushed(self.broker_id, log_start)

    def suspects(self, suspect: Suspect) -> None:
        """End a stream with an unsound batch. Verifying the batch here shows whether the leader's disk is damaged."""
        stream = self._streams.get(suspect.stream)
        if stream is not None:
            self.forget(stream)
            self._tasks.spawn(self._verify(stream, suspect.offset))

    def forget(self, stream: ReplicaStream) -> None:
        """End a stream, and detach its follower: it may come back with less than it has reported (rule 6)."""
        self._streams.pop(stream.id, None)
        stream.directory.with_data.pop(stream, None)
        stream.directory.window.ended(stream.in_flight)
        self._with_new_watermark.pop(stream, None)
        stream.leader.streams.pop(stream, None)
        stream.leader.view.follower_detached(self.broker_id)

    def schedule_data(self, stream: ReplicaStream) -> None:
        directory = stream.directory
        directory.with_data[stream] = None
        if directory.window.may_send():
            self._end_of_tick.due(self)

    def schedule_watermark(self, stream: ReplicaStream) -> None:
        self._with_new_watermark[stream] = None
        if self._timer is None:
            self._timer = self._loop.call_later(WATERMARK_DELAY_S, self._send_watermarks)

    def wake(self) -> None:
        """Begin requested streams and send everything that is due at the end of an event-loop iteration."""
        if self._to_begin:
            self._begin_some()
        rows, self._answers = self._answers, []
        chunks: list[Chunk] = []
        others: list[list[Chunk]] = []
        size = waiting = 0
        for directory in self._directories.values():
            if directory.with_data:
                waiting += 1
        for directory in self._directories.values():
            if directory.with_data:
                size += self._fill(directory, STREAMS_PER_PUSH // waiting, rows, chunks, others)
        if rows:
            self._channel.push([encode_push(rows, size), *chunks])
        for push in others:
            self._channel.push(push)

    def _fill(
        self,
        directory: FollowerDirectory,
        most: int,
        rows: list[PushRow],
        chunks: list[Chunk],
        others: list[list[Chunk]],
    ) -> int:
        """Collect the next push to replicas in sync in one log directory, of `most` streams. Return its bytes.

        If more of them wait, it is a part of the push, and the next iteration of the event loop sends the next one: a
        write to thousands of partitions does not take a round trip for each `most` of them. To replicas that catch up
        goes what is left of its bytes, in a push of their own, which is added to `others`.
        """
        window, waiting = directory.window, len(directory.with_data)
        may_send = window.may_send()
        if not may_send and not window.may_catch_up():
            return 0
        in_sync: list[ReplicaStream] = []
        catching_up: list[ReplicaStream] = []
        for stream in islice(directory.with_data, most * SEEN_PER_STREAM):
            (in_sync if stream.leader.view.counts_on(self.broker_id) else catching_up).append(stream)
        are_many = waiting > most * SEEN_PER_STREAM
        if are_many:
            # Before some of them get a turn: those come last.
            _to_the_end(catching_up, directory.with_data)
        sent = caught_up = 0
        budget = min(window.push_bytes, window.credit)
        if in_sync and may_send:
            push = window.cut or Push(window.in_sync)
            sent = self._take(in_sync[:most], budget, push, rows, chunks)
            if sent:
                window.sent(push, sent, is_cut=waiting > most and len(in_sync) > most)
        if catching_up and sent < budget and most > len(in_sync) and window.may_catch_up():
            caught_up = self._catch_up(catching_up, most - len(in_sync), budget - sent, window, others)
        if are_many and not sent + caught_up:
            self.retry_in(LOOK_ON_S)
        # Unless nothing was taken or found empty: then only a report or the end of a throttle changes that.
        if directory.with_data and (sent + caught_up or len(directory.with_data) < waiting):
            self._soon()
        return sent

    def _catch_up(
        self, streams: list[ReplicaStream], most: int, left: int, window: PushWindow, others: list[list[Chunk]]
    ) -> int:
        """Add a push to `most` replicas outside the ISR, within their limits. Return its size in bytes."""
        rows: list[PushRow] = []
        chunks: list[Chunk] = []
        push = Push(window.catching_up)
        now, taken = self._loop.time(), 0
        by_charge: dict[Charge | None, list[ReplicaStream]] = defaultdict(list)
        for stream in streams:
            by_charge[stream.leader.view.charge_of(self.broker_id)].append(stream)
        for charge, charged in by_charge.items():
            allowed = min(left - taken, self._catchup.available(now))
            if allowed <= 0:
                self.retry_in(wait_s(self._catchup))
                break
            if charge is not None:
                allowed = min(allowed, self._throttle.allowed(self, charge, now))
            if allowed > 0 and most > 0:
                size = self._take(charged[:most], allowed, push, rows, chunks)
                most -= len(charged)
                taken += size
                self._catchup.charge(size, now)
                if charge is not None:
                    self._throttle.sent(self, charge, size, now)
        if taken:
            window.sent(push, taken)
        if rows:
            others.append([encode_push(rows, taken), *chunks])
        return taken

    def _directory(self, stream_id: int) -> FollowerDirectory:
        number = directory_of(stream_id)
        directory = self._directories.get(number)
        if directory is None:
            directory = self._directories[number] = FollowerDirectory()
        return directory

    def fail(self, error: Exception) -> None:
        self._channel.close(f"replication to broker {self.broker_id} failed: {error!r}")

    def _begin_some(self) -> None:
        for stream_id in list(islice(self._to_begin, BEGUN_PER_STEP)):
            self._begin(self._to_begin.pop(stream_id))
        if self._to_begin:
            self._soon()

    def _begin(self, row: FollowRequest) -> None:
        """Begin a stream. Answer immediately if the follower cannot continue from its log end."""
        partition = self._replicas.with_id(row.topic_id, row.partition)
        leader = None if partition is None else partition.leader_for(self.broker_id, row.leader_epoch)
        if leader is None:
            self._refuse(row.stream)
            return
        stream = ReplicaStream(self, leader, row, self._directory(row.stream))
        try:
            self._begin_stream(stream, leader, row)
        except Exception as error:
            self._end(stream, error)

    def _begin_stream(self, stream: ReplicaStream, leader: LeaderRole, row: FollowRequest) -> None:
        """Compare the logs; begin the stream if the follower's log is a part of this one.

        Raises ImpossibleReport, and DamagedLog if this log has lost the batches from which on the other one differs.
        """
        log = leader.log
        if not 0 <= row.flushed_end <= row.log_end:
            raise ImpossibleReport(f"a flushed end of {row.flushed_end}, but the log ends at {row.log_end}")
        try:
            start = log.start_boundary(wait=False)
        except NotInMemory:
            self._refuse(row.stream)
            self._tasks.spawn(self._verify(stream, log.log_start))
            return
        if row.log_end < start:
            self._answers.append(PushRow(row.stream, PushKind.TOO_OLD, start - min(log.log_start, start), start))
            return
        difference = first_difference(log.epochs, log.log_end, row.last_epoch, row.log_end)
        if start < row.log_end <= log.log_start:
            # The follower's log ends within a batch of this log.
            difference = NO_EPOCH, start
        if difference is not None:
            # Epochs older than all of this log end at its log start offset, which may be within a batch.
            epoch, end = (NO_EPOCH, start) if difference == (NO_EPOCH, log.log_start) else difference
            try:
                _must_be_readable(log, end)
            except NotInMemory:
                self._refuse(row.stream)
                self._tasks.spawn(self._verify(stream, end))
                return
            self._answers.append(PushRow(row.stream, PushKind.DIFFERS, epoch, end))
            return
        for old in [other for other in leader.streams if other.connection is self]:
            self.forget(old)
        self._streams[row.stream] = stream
        leader.streams[stream] = None
        leader.follower_attached(self.broker_id, row.flushed_end, row.log_start, self._loop.time())
        stream.directory.with_data[stream] = None
        self.schedule_watermark(stream)

    def _take(
        self, streams: list[ReplicaStream], budget: int, push: Push, rows: list[PushRow], chunks: list[Chunk]
    ) -> int:
        """Collect whole batches of these streams, about `budget` bytes, for a push. Return their size in bytes.

        Each stream gets a share first, then the rest in turn: no stream waits for another's backlog.
        """
        taken = 0
        for share in (budget,) if len(streams) == 1 else (max(budget // len(streams), SHARE_BYTES), budget):
            for stream in streams:
                room = budget - taken
                if room <= 0:
                    return taken
                if stream in stream.directory.with_data:
                    taken += self._take_from(stream, share if share < room else room, push, rows, chunks)
        return taken

    def _take_from(
        self, stream: ReplicaStream, budget: int, push: Push, rows: list[PushRow], chunks: list[Chunk]
    ) -> int:
        """Collect batches of one stream, as `_take`. An error ends that stream alone."""
        partition = stream.partition
        log = partition.log
        try:
            batches = stream.leader.read_cache.take(stream.sent_end, budget, len(stream.leader.streams))
        except NotInMemory:
            stream.directory.with_data.pop(stream, None)
            self._prefetch_later(stream)
            return 0
        except OffsetOutOfRange:
            # The follower asks again, and the answer has this log's start.
            self.forget(stream)
            rows.append(PushRow(stream.id, PushKind.REFUSED, 0, 0))
            return 0
        except Exception as error:
            self._end(stream, error)
            return 0
        with_data = stream.directory.with_data
        with_data.pop(stream, None)
        if batches is None:
            return 0
        stream.sent_end = batches.end
        if stream.sent_end < log.log_end:
            # Last in the queue: the streams that wait come first in the next push.
            with_data[stream] = None
        self._with_new_watermark.pop(stream, None)
        stream.sent_watermark, stream.sent_start = partition.high_watermark, log.log_start
        kind = PushKind.DATA_WITH_GAPS if batches.may_have_gaps else PushKind.DATA
        rows.append(PushRow(stream.id, kind, stream.sent_watermark, stream.sent_start, batches.size))
        chunks.append(batches.chunk)
        if batches.size:
            stream.in_flight[push] = stream.in_flight.get(push, 0) + batches.size
        return batches.size

    def _send_watermarks(self) -> None:
        """Send high watermarks and log start offsets that found no data to be sent with."""
        self._timer = None
        for stream in list(islice(self._with_new_watermark, WATERMARKS_PER_STEP)):
            del self._with_new_watermark[stream]
            partition = stream.partition
            watermark, start = partition.high_watermark, partition.log.log_start
            if (watermark, start) != (stream.sent_watermark, stream.sent_start):
                stream.sent_watermark, stream.sent_start = watermark, start
                self._answers.append(PushRow(stream.id, PushKind.DATA, watermark, start))
        if self._with_new_watermark:
            self._timer = self._loop.call_later(0, self._send_watermarks)
        self._soon()

    def retry_in(self, delay_s: float) -> None:
        """Send the batches that a limit holds back after this time."""
        when = self._loop.time() + delay_s
        if self._retry is None or when < self._retry_at:
            if self._retry is not None:
                self._retry.cancel()
            self._retry, self._retry_at = self._loop.call_at(when, self._retried), when

    def _retried(self) -> None:
        self._retry = None
        self._soon()

    def _prefetch_later(self, stream: ReplicaStream) -> None:
        """Prefetch the next batches of a stream in a thread."""
        if not stream.is_prefetching:
            stream.is_prefetching = True
            self._tasks.spawn(self._prefetch(stream))

    async def _prefetch(self, stream: ReplicaStream) -> None:
        try:
            prefetch = stream.leader.read_cache.prefetch
            await stream.partition.directory.run_blocking(prefetch, stream.sent_end, PUSH_BYTES)
        except OffsetOutOfRange:
            # The next push from this stream raises it again, and answers it.
            pass
        except Exception as error:
            if self._is_current(stream):
                self._end(stream, error)
        stream.is_prefetching = False
        if self._is_current(stream):
            self.schedule_data(stream)

    async def _verify(self, stream: ReplicaStream, offset: int) -> None:
        try:
            await stream.partition.directory.run_blocking(_read_batch, stream.leader.log, offset)
        except OffsetOutOfRange:
            pass
        except StorageError as error:
            self._blame(stream.partition, error)

    def _is_current(self, stream: ReplicaStream) -> bool:
        """Return whether the stream is still active: otherwise its log may have been truncated during a read."""
        return self._streams.get(stream.id) is stream

    def _end(self, stream: ReplicaStream, error: Exception) -> None:
        """End a stream that cannot go on, for an error of its partition or its follower. Other streams go on."""
        self.forget(stream)
        self._refuse(stream.id)
        self._blame(stream.partition, error)

    def _refuse(self, stream_id: int) -> None:
        """Refuse a stream: the follower asks again later."""
        self._answers.append(PushRow(stream_id, PushKind.REFUSED, 0, 0))
        self._soon()

    def _blame(self, partition: "Partition", error: Exception) -> None:
        if isinstance(error, DamagedLog):
            partition.report_damage(error)
        elif isinstance(error, ImpossibleReport | StorageError | OSError):
            _events.warning("stream.ended", topic=partition.topic, partition=partition.index, follower=self.broker_id,
                            reason=str(error))  # fmt: skip
        else:
            partition.fail(error)

    def _soon(self) -> None:
        self._end_of_tick.due(self)


def _to_the_end(streams: list[ReplicaStream], waiting: dict[ReplicaStream, None]) -> None:
    """Let the other waiting streams be looked through before these."""
    for stream in streams:
        waiting[stream] = waiting.pop(stream)


def _must_be_readable(log: Log, offset: int) -> None:
    """Raise DamagedLog unless the batch at `offset`, with which an epoch begins, is there; NotInMemory if unknown.

    In a range that is lost the epoch may begin later: the follower may have the only copies of the records before it.
    """
    if log.local_start <= offset < log.log_end:
        log.slice(offset, 1, log.log_end, wait=False)


def _read_batch(log: Log, offset: int) -> None:
    """Read and verify the batch with `offset`. Raises OffsetOutOfRange, DamagedLog, OutOfResources, DiskFailed."""
    found = log.slice(offset, 1, log.log_end)
    while found is not None and found.size:
        found.next_piece()
