"""A leader's side of one follower: what to send it next, as soon as it is in memory, and how much may be on the way.

The leader does not wait for its own disk before it ships, and there is more than one answer on the way; the follower
says on its own how far it has flushed. So the disks of all replicas work at the same time (docs/adr/0012).
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from cordwood.replication.channel import Channel, Chunk
from cordwood.replication.follower import first_difference
from cordwood.replication.frames import Follow, Open, PushKind, PushRow, Report, Suspect, encode_push
from cordwood.replication.waiters import Wakeups
from cordwood.storage.errors import DamagedLog, OffsetOutOfRange
from cordwood.storage.segment import NotInMemory

if TYPE_CHECKING:
    from cordwood.replication.housekeeping import RunBlocking
    from cordwood.replication.partition import Partition

ANSWERS_ON_THE_WAY_MAX = 2
WINDOW_BYTES = 8 << 20
"""Sent to one follower and not yet reported as flushed."""
PUSH_BYTES = 1 << 20
WATERMARK_DELAY_S = 0.01
"""How long a watermark waits for data that it can ride on."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What a link keeps to. Bytes per second are for followers that are not in sync."""

    catchup_bytes_per_second: int


class LedPartitions(Protocol):
    """The partitions that this broker has, as its links need them."""

    def with_id(self, topic_id: UUID, index: int) -> "Partition | None": ...


class Stream:
    """One partition on its way to one follower, from `sent_end` on, in one leader epoch."""

    __slots__ = ("id", "is_warming", "leader_epoch", "link", "partition", "sent_end", "told_start", "told_watermark")

    def __init__(self, link: "Link", partition: "Partition", follow: Follow) -> None:
        self.id, self.link, self.partition = follow.stream, link, partition
        self.leader_epoch, self.sent_end = follow.leader_epoch, follow.log_end
        self.told_watermark = self.told_start = -1
        self.is_warming = False

    def grown(self) -> None:
        """The partition's log has more."""
        self.link.has_data(self)

    def committed(self) -> None:
        """The partition's watermark or its start has moved."""
        self.link.has_news(self)

    def end(self) -> None:
        """The partition is no longer led here: the follower will hear so from the metadata."""
        self.link.forget(self)


class Link:
    """One follower's connection."""

    def __init__(
        self,
        channel: Channel,
        hello: Open,
        partitions: LedPartitions,
        wakeups: Wakeups,
        run_blocking: "RunBlocking",
        limits: LinkLimits,
    ) -> None:
        self.broker_id, self.broker_epoch = hello.broker_id, hello.broker_epoch
        self._channel, self._partitions, self._wakeups = channel, partitions, wakeups
        self._run_blocking, self._limits = run_blocking, limits
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, Stream] = {}
        self._with_data: dict[Stream, None] = {}
        self._with_news: dict[Stream, None] = {}
        self._answers: list[PushRow] = []
        self._credit = WINDOW_BYTES
        self._on_the_way: deque[int] = deque()
        """The total of bytes pushed after each answer that is not reported as flushed."""
        self._pushed = self._reported = 0
        self._allowance, self._allowed_at = float(PUSH_BYTES), self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

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
        """The follower has these on its disk."""
        now = self._loop.time()
        for stream_id, flushed_end, size in rows:
            self._credit += size
            self._reported += size
            stream = self._streams.get(stream_id)
            if stream is not None and flushed_end >= 0:
                stream.partition.follower_flushed(self.broker_id, stream.leader_epoch, flushed_end, now)
        while self._on_the_way and self._on_the_way[0] <= self._reported:
            self._on_the_way.popleft()
        if self._with_data:
            self._soon()

    def suspects(self, suspect: Suspect) -> None:
        """The follower got something unsound: whether it is our disk, our own proof of the batch will tell."""
        stream = self._streams.get(suspect.stream)
        if stream is not None:
            self.forget(stream)
            stream.partition.suspect(suspect.offset)

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        self._with_data.pop(stream, None)
        self._with_news.pop(stream, None)
        stream.partition.streams.pop(stream, None)

    def has_data(self, stream: Stream) -> None:
        self._with_data[stream] = None
        if self._may_push():
            self._wakeups.due(self)

    def has_news(self, stream: Stream) -> None:
        self._with_news[stream] = None
        if self._timer is None:
            self._timer = self._loop.call_later(WATERMARK_DELAY_S, self._tell_news)

    def wake(self) -> None:
        """The end of a turn: send what there is to send, those in sync first."""
        rows, self._answers = self._answers, []
        chunks: list[Chunk] = []
        if self._with_data and self._may_push():
            budget = min(PUSH_BYTES, self._credit)
            in_sync: list[Stream] = []
            behind: list[Stream] = []
            for stream in self._with_data:
                (in_sync if stream.partition.counts_on(self.broker_id) else behind).append(stream)
            budget -= self._take(in_sync, budget, rows, chunks)
            if behind and budget > 0 and (allowed := self._allowed()) > 0:
                self._allowance -= self._take(behind, min(budget, allowed), rows, chunks)
        if rows:
            size = sum([row.size for row in rows])
            if size:
                self._credit -= size
                self._pushed += size
                self._on_the_way.append(self._pushed)
            self._channel.push([encode_push(rows, size), *chunks])
            if self._with_data and self._may_push():
                self._soon()

    def _begin(self, row: Follow) -> None:
        """Answer at once where the follower cannot go on from where it is; otherwise it is sent what it lacks."""
        partition = self._partitions.with_id(row.topic_id, row.partition)
        if partition is None or not partition.is_led_for(self.broker_id, row.leader_epoch):
            self._answers.append(PushRow(row.stream, PushKind.REFUSED, 0, 0))
            return
        log = partition.log
        if row.log_end < log.log_start:
            self._answers.append(PushRow(row.stream, PushKind.TOO_OLD, 0, log.log_start))
            return
        difference = first_difference(log.epochs, log.log_end, row.last_epoch, row.log_end)
        if difference is not None:
            self._answers.append(PushRow(row.stream, PushKind.DIFFERS, *difference))
            return
        for old in [stream for stream in partition.streams if stream.link is self]:
            self.forget(old)
        stream = self._streams[row.stream] = Stream(self, partition, row)
        partition.streams[stream] = None
        partition.follower_began(self.broker_id, row.flushed_end, self._loop.time())
        self._with_data[stream] = None
        self.has_news(stream)

    def _take(self, streams: list[Stream], budget: int, rows: list[PushRow], chunks: list[Chunk]) -> int:
        """Collect what these have, whole batches, about `budget` bytes. Returns how many bytes it is."""
        taken = 0
        for stream in streams:
            if taken >= budget:
                break
            taken += self._take_from(stream, budget - taken, rows, chunks)
        return taken

    def _take_from(self, stream: Stream, budget: int, rows: list[PushRow], chunks: list[Chunk]) -> int:
        partition = stream.partition
        log = partition.log
        try:
            shipment = partition.shipments.take(stream.sent_end, budget, len(partition.streams))
        except NotInMemory:
            self._with_data.pop(stream, None)
            self._warm(stream)
            return 0
        except OffsetOutOfRange:
            self.forget(stream)
            rows.append(PushRow(stream.id, PushKind.TOO_OLD, 0, log.log_start))
            return 0
        except DamagedLog as damage:
            self.forget(stream)
            partition.damaged(damage)
            return 0
        if shipment is None:
            self._with_data.pop(stream, None)
            return 0
        stream.sent_end = shipment.end
        if stream.sent_end >= log.log_end:
            self._with_data.pop(stream, None)
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

    def _may_push(self) -> bool:
        return self._credit > 0 and len(self._on_the_way) < ANSWERS_ON_THE_WAY_MAX

    def _allowed(self) -> int:
        """Bytes that may go to followers that are not in sync now; looked at again when there are some."""
        now, rate = self._loop.time(), self._limits.catchup_bytes_per_second
        self._allowance = min(self._allowance + (now - self._allowed_at) * rate, float(PUSH_BYTES))
        self._allowed_at = now
        if self._allowance <= 0:
            self._loop.call_later(PUSH_BYTES / 4 / rate, self._soon)
        return int(self._allowance)

    def _warm(self, stream: Stream) -> None:
        """Have the disk read what comes next, beside the loop."""
        if not stream.is_warming:
            stream.is_warming = True
            task = self._loop.create_task(self._read_ahead(stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read_ahead(self, stream: Stream) -> None:
        # An error is met again, and dealt with, when the stream is sent from.
        with contextlib.suppress(OffsetOutOfRange, DamagedLog, OSError):
            await self._run_blocking(stream.partition.shipments.warm, stream.sent_end, PUSH_BYTES)
        stream.is_warming = False
        if stream.id in self._streams:
            self.has_data(stream)

    def _soon(self) -> None:
        self._wakeups.due(self)
