"""A leader's side of one follower: what to send it next, as soon as it is in memory, and how much may be on the way.

The leader does not wait for its own disk before it ships, and there is more than one answer on the way; the follower
says on its own how far it has flushed. So the disks of all replicas work at the same time (docs/adr/0012).
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import structlog

from cordwood.replication.channel import Channel, Chunk
from cordwood.replication.follower import first_difference
from cordwood.replication.frames import (
    Follow,
    MalformedFrame,
    Open,
    PushKind,
    PushRow,
    Report,
    Start,
    Suspect,
    directory_of,
    encode_push,
)
from cordwood.replication.leader import ImpossibleReport
from cordwood.replication.tasks import Tasks
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.replication.windows import ImpossibleCredit, Window
from cordwood.storage.errors import DamagedLog, OffsetOutOfRange, StorageError
from cordwood.storage.segment import NotInMemory
from cordwood.storage.types import NO_EPOCH

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

PUSH_BYTES = 1 << 20
SHARE_BYTES = 64 << 10
"""A stream's part of a push while others wait is at least this: more, smaller reads would cost more than they share."""
WATERMARK_DELAY_S = 0.01
"""How long a watermark waits for data that it can ride on."""

_events = structlog.get_logger("replication")


@dataclass(frozen=True, slots=True)
class FollowerLimits:
    """What a link keeps to. Bytes per second are for followers that are not in sync."""

    catchup_bytes_per_second: int


class LedPartitions(Protocol):
    """The partitions that this broker has, as its links need them."""

    def with_id(self, topic_id: UUID, index: int) -> "Partition | None": ...


class ReplicaStream:
    """One partition on its way to one follower, from `sent_end` on, in one leader epoch."""

    __slots__ = (
        "connection",
        "id",
        "is_warming",
        "leader_epoch",
        "partition",
        "sent_end",
        "told_start",
        "told_watermark",
        "way",
    )  # fmt: skip

    def __init__(self, connection: "FollowerConnection", partition: "Partition", follow: Follow, way: "Way") -> None:
        self.id, self.connection, self.partition, self.way = follow.stream, connection, partition, way
        self.leader_epoch, self.sent_end = follow.leader_epoch, follow.log_end
        self.told_watermark = self.told_start = -1
        self.is_warming = False

    def grown(self) -> None:
        """The partition's log has more."""
        self.connection.has_data(self)

    def committed(self) -> None:
        """The partition's watermark or its start has moved."""
        self.connection.has_news(self)

    def end(self) -> None:
        """The partition is no longer led here: the follower will hear so from the metadata."""
        self.connection.forget(self)


class Way:
    """To one log directory of a follower: the streams that have something for it, and its window."""

    __slots__ = ("window", "with_data")

    def __init__(self) -> None:
        self.window = Window()
        self.with_data: dict[ReplicaStream, None] = {}


class FollowerConnection:
    """One follower's connection."""

    def __init__(
        self,
        channel: Channel,
        hello: Open,
        partitions: LedPartitions,
        end_of_tick: EndOfTickScheduler,
        limits: FollowerLimits,
    ) -> None:
        self.broker_id, self.broker_epoch = hello.broker_id, hello.broker_epoch
        self._channel, self._partitions, self._end_of_tick = channel, partitions, end_of_tick
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, ReplicaStream] = {}
        self._ways: dict[int, Way] = {}
        """By the number of the follower's log directory."""
        self._with_news: dict[ReplicaStream, None] = {}
        self._answers: list[PushRow] = []
        self._allowance, self._allowed_at = float(PUSH_BYTES), self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    def close(self) -> None:
        """The connection has ended: no partition sends here any more."""
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._streams.values()):
            self.forget(stream)
            stream.partition.lost_follower(self.broker_id)

    def follow(self, rows: list[Follow]) -> None:
        """The follower wants these partitions, or wants them from another place than before."""
        for row in rows:
            self._begin(row)
        self._soon()

    def leave(self, ids: list[int]) -> None:
        for stream_id in ids:
            stream = self._streams.get(stream_id)
            if stream is not None:
                self.forget(stream)

    def reported(self, rows: list[Report]) -> None:
        """The follower has these on its disk. Raises MalformedFrame."""
        now = self._loop.time()
        for stream_id, flushed_end, size in rows:
            stream = self._streams.get(stream_id)
            way = self._way(stream_id) if stream is None else stream.way
            try:
                way.window.reported(size)
            except ImpossibleCredit as impossible:
                raise MalformedFrame(str(impossible)) from impossible
            if stream is not None and flushed_end >= 0:
                try:
                    stream.partition.follower_flushed(self.broker_id, stream.leader_epoch, flushed_end, now)
                except Exception as error:
                    self._end(stream, error)
        for way in self._ways.values():
            if way.with_data:
                self._soon()
                break

    def started(self, rows: list[Start]) -> None:
        """The follower's logs begin there, and would after a restart."""
        for stream_id, log_start in rows:
            stream = self._streams.get(stream_id)
            if stream is not None:
                with stream.partition.contained():
                    stream.partition.follower_started(self.broker_id, log_start)

    def suspects(self, suspect: Suspect) -> None:
        """The follower got something unsound: whether it is our disk, our own proof of the batch will tell."""
        stream = self._streams.get(suspect.stream)
        if stream is not None:
            self.forget(stream)
            self._tasks.spawn(self._prove(stream, suspect.offset))

    def forget(self, stream: ReplicaStream) -> None:
        self._streams.pop(stream.id, None)
        stream.way.with_data.pop(stream, None)
        self._with_news.pop(stream, None)
        stream.partition.streams.pop(stream, None)

    def has_data(self, stream: ReplicaStream) -> None:
        way = stream.way
        way.with_data[stream] = None
        if way.window.may_send():
            self._end_of_tick.due(self)

    def has_news(self, stream: ReplicaStream) -> None:
        self._with_news[stream] = None
        if self._timer is None:
            self._timer = self._loop.call_later(WATERMARK_DELAY_S, self._tell_news)

    def wake(self) -> None:
        """The end of a turn: send what there is to send, those in sync first."""
        rows, self._answers = self._answers, []
        chunks: list[Chunk] = []
        size = 0
        for way in self._ways.values():
            if way.with_data and way.window.may_send():
                size += self._fill(way, rows, chunks)
        if rows:
            self._channel.push([encode_push(rows, size), *chunks])

    def _fill(self, way: Way, rows: list[PushRow], chunks: list[Chunk]) -> int:
        """Collect what one log directory is sent now. Returns how many bytes it is."""
        window = way.window
        budget = left = min(PUSH_BYTES, window.credit)
        in_sync: list[ReplicaStream] = []
        behind: list[ReplicaStream] = []
        for stream in way.with_data:
            (in_sync if stream.partition.counts_on(self.broker_id) else behind).append(stream)
        if in_sync:
            left -= self._take(in_sync, left, rows, chunks)
        if behind and left > 0 and (allowed := self._allowed()) > 0:
            taken = self._take(behind, min(left, allowed), rows, chunks)
            self._allowance -= taken
            left -= taken
        if left < budget:
            window.sent(budget - left)
            if way.with_data and window.may_send():
                self._soon()
        return budget - left

    def _way(self, stream_id: int) -> Way:
        return self._ways.setdefault(directory_of(stream_id), Way())

    def fail(self, error: Exception) -> None:
        self._channel.close(f"replication to broker {self.broker_id} failed: {error!r}")

    def _begin(self, row: Follow) -> None:
        """Answer at once where the follower cannot go on from where it is; otherwise it is sent what it lacks."""
        if (known := self._streams.get(row.stream)) is not None:
            self.forget(known)
        partition = self._partitions.with_id(row.topic_id, row.partition)
        if partition is None or not partition.is_led_for(self.broker_id, row.leader_epoch):
            self._refuse(row.stream)
            return
        stream = ReplicaStream(self, partition, row, self._way(row.stream))
        try:
            self._begin_stream(stream, partition, row)
        except Exception as error:
            self._end(stream, error)

    def _begin_stream(self, stream: ReplicaStream, partition: "Partition", row: Follow) -> None:
        """Raises ImpossibleReport."""
        log = partition.log
        if not 0 <= row.flushed_end <= row.log_end:
            raise ImpossibleReport(f"flushed to {row.flushed_end} in a log that ends at {row.log_end}")
        try:
            start = log.start_boundary(wait=False)
        except NotInMemory:
            self._refuse(row.stream)
            self._tasks.spawn(self._prove(stream, log.log_start))
            return
        if row.log_end < start:
            self._answers.append(PushRow(row.stream, PushKind.TOO_OLD, 0, start))
            return
        difference = first_difference(log.epochs, log.log_end, row.last_epoch, row.log_end)
        if start < row.log_end <= log.log_start:
            # It ends within a batch of ours.
            difference = NO_EPOCH, start
        if difference is not None:
            # What is older than all our epochs ends with our log's start, which may lie within a batch.
            epoch, end = (NO_EPOCH, start) if difference == (NO_EPOCH, log.log_start) else difference
            self._answers.append(PushRow(row.stream, PushKind.DIFFERS, epoch, end))
            return
        for old in [other for other in partition.streams if other.connection is self]:
            self.forget(old)
        self._streams[row.stream] = stream
        partition.streams[stream] = None
        partition.follower_began(self.broker_id, row.flushed_end, row.log_start, self._loop.time())
        stream.way.with_data[stream] = None
        self.has_news(stream)

    def _take(self, streams: list[ReplicaStream], budget: int, rows: list[PushRow], chunks: list[Chunk]) -> int:
        """Collect what these have, whole batches, about `budget` bytes. Returns how many bytes it is.

        A share for each first, then what is left in turn: nobody waits for the backlog of another.
        """
        taken = 0
        for share in (budget,) if len(streams) == 1 else (max(budget // len(streams), SHARE_BYTES), budget):
            for stream in streams:
                room = budget - taken
                if room <= 0:
                    return taken
                if stream in stream.way.with_data:
                    taken += self._take_from(stream, share if share < room else room, rows, chunks)
        return taken

    def _take_from(self, stream: ReplicaStream, budget: int, rows: list[PushRow], chunks: list[Chunk]) -> int:
        """As `_take`. Whatever is wrong with the stream costs that stream alone."""
        partition = stream.partition
        log = partition.log
        try:
            shipment = partition.read_cache.take(stream.sent_end, budget, len(partition.streams))
        except NotInMemory:
            stream.way.with_data.pop(stream, None)
            self._warm(stream)
            return 0
        except OffsetOutOfRange:
            # It asks again, and is told where we begin.
            self.forget(stream)
            rows.append(PushRow(stream.id, PushKind.REFUSED, 0, 0))
            return 0
        except Exception as error:
            self._end(stream, error)
            return 0
        with_data = stream.way.with_data
        with_data.pop(stream, None)
        if shipment is None:
            return 0
        stream.sent_end = shipment.end
        if stream.sent_end < log.log_end:
            # Behind the others that wait: they come first in the next push.
            with_data[stream] = None
        self._with_news.pop(stream, None)
        stream.told_watermark, stream.told_start = partition.high_watermark, log.log_start
        rows.append(PushRow(stream.id, PushKind.DATA, stream.told_watermark, stream.told_start, shipment.size))
        chunks.append(shipment.chunk)
        return shipment.size

    def _tell_news(self) -> None:
        """Watermarks that found no data to ride on."""
        self._timer = None
        streams, self._with_news = self._with_news, {}
        for stream in streams:
            partition = stream.partition
            watermark, start = partition.high_watermark, partition.log.log_start
            if (watermark, start) != (stream.told_watermark, stream.told_start):
                stream.told_watermark, stream.told_start = watermark, start
                self._answers.append(PushRow(stream.id, PushKind.DATA, watermark, start))
        self._soon()

    def _allowed(self) -> int:
        """Bytes that may go to followers that are not in sync now; looked at again when there are some."""
        now, rate = self._loop.time(), self._limits.catchup_bytes_per_second
        self._allowance = min(self._allowance + (now - self._allowed_at) * rate, float(PUSH_BYTES))
        self._allowed_at = now
        if self._allowance <= 0:
            self._loop.call_later(PUSH_BYTES / 4 / rate, self._soon)
        return int(self._allowance)

    def _warm(self, stream: ReplicaStream) -> None:
        """Have the disk read what comes next, beside the loop."""
        if not stream.is_warming:
            stream.is_warming = True
            self._tasks.spawn(self._read_ahead(stream))

    async def _read_ahead(self, stream: ReplicaStream) -> None:
        try:
            partition = stream.partition
            await partition.directory.run_blocking(partition.read_cache.prefetch, stream.sent_end, PUSH_BYTES)
        except OffsetOutOfRange:
            # It is met again, and answered, when the stream is sent from.
            pass
        except Exception as error:
            if self._is_current(stream):
                self._end(stream, error)
        stream.is_warming = False
        if self._is_current(stream):
            self.has_data(stream)

    async def _prove(self, stream: ReplicaStream, offset: int) -> None:
        try:
            await stream.partition.directory.run_blocking(stream.partition.prove, offset)
        except OffsetOutOfRange:
            pass
        except StorageError as error:
            self._blame(stream.partition, error)

    def _is_current(self, stream: ReplicaStream) -> bool:
        """Whether the stream still is sent from: the log of one that is not may have been cut while it was read."""
        return self._streams.get(stream.id) is stream

    def _end(self, stream: ReplicaStream, error: Exception) -> None:
        """The stream cannot go on, for what is wrong with its partition or with its follower: the others do."""
        self.forget(stream)
        self._refuse(stream.id)
        self._blame(stream.partition, error)

    def _refuse(self, stream_id: int) -> None:
        """The follower asks again in a while."""
        self._answers.append(PushRow(stream_id, PushKind.REFUSED, 0, 0))
        self._soon()

    def _blame(self, partition: "Partition", error: Exception) -> None:
        if isinstance(error, DamagedLog):
            partition.damaged(error)
        elif isinstance(error, ImpossibleReport | StorageError | OSError):
            _events.warning("stream.ended", topic=partition.topic, partition=partition.index, follower=self.broker_id,
                            reason=str(error))  # fmt: skip
        else:
            partition.fail(error)

    def _soon(self) -> None:
        self._end_of_tick.due(self)
