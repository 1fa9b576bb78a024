"""Connected followers of this broker, and dispatch of the frames that they send."""

from collections.abc import Callable

import structlog

from cordwood.replication.channel import Channel
from cordwood.replication.follower_connection import FollowerConnection, FollowerLimits
from cordwood.replication.frames import (
    FrameKey,
    MalformedFrame,
    Open,
    ReadRequest,
    decode_follow,
    decode_leave,
    decode_open,
    decode_read,
    decode_reports,
    decode_starts,
    decode_suspect,
    has_more_rows,
    key_of,
    split,
)
from cordwood.replication.range_reads import RangeServer
from cordwood.replication.replicas import Replicas
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.steps import Steps

ROWS_PER_STEP = 256
"""Rows of a frame that are handled in one step of the event loop: some 2 ms."""
ONE_STEP_BYTES = 4 * ROWS_PER_STEP
"""No frame of this length has more rows, of 4 bytes at least. Usual frames are shorter: their rows are not counted."""

CheckPeer = Callable[[Open], str | None]
"""Returns why a broker with this introduction may not follow; None if it may."""

_events = structlog.get_logger("replication")


class FollowerConnections:
    """One connection per follower: if a broker connects again, its earlier connection is lost, noticed or not."""

    def __init__(
        self,
        replicas: Replicas,
        end_of_tick: EndOfTickScheduler,
        limits: FollowerLimits,
        check_peer: CheckPeer,
    ) -> None:
        self._replicas, self._end_of_tick = replicas, end_of_tick
        self._limits, self._check_peer = limits, check_peer
        self._ranges = RangeServer(replicas)
        self._by_channel: dict[Channel, FollowerConnection] = {}
        self._by_broker: dict[int, Channel] = {}

    def handle(self, channel: Channel, frame: memoryview) -> Steps[None] | None:
        """Handle one frame from a follower. Raises MalformedFrame.

        A frame of many rows is handled by the steps that are returned. The channel's next frame has to wait for their
        end, and the frame has to stay as it is.
        """
        key = key_of(frame)
        if key is FrameKey.OPEN:
            self._open(channel, decode_open(frame))
        elif key is FrameKey.READ:
            self._read(channel, *decode_read(frame))
        elif channel not in self._by_channel:
            # A broker that was just refused: frames that it sent after its introduction still arrive.
            raise MalformedFrame("a broker that has not sent its introduction")
        elif len(frame) > ONE_STEP_BYTES and has_more_rows(frame, ROWS_PER_STEP):
            return self._in_steps(channel, key, frame)
        else:
            self._take(self._by_channel[channel], key, frame)
        return None

    def _in_steps(self, channel: Channel, key: FrameKey, frame: memoryview) -> Steps[None]:
        for part in split(frame, ROWS_PER_STEP):
            connection = self._by_channel.get(channel)
            if connection is None:
                # It has ended meanwhile: its streams have, too, and no other may begin.
                return
            self._take(connection, key, part)
            yield

    def _take(self, connection: FollowerConnection, key: FrameKey, frame: memoryview) -> None:
        match key:
            case FrameKey.REPORT:
                connection.reported(decode_reports(frame))
            case FrameKey.START:
                connection.starts_flushed(decode_starts(frame))
            case FrameKey.FOLLOW:
                connection.follow(decode_follow(frame))
            case FrameKey.LEAVE:
                connection.leave(decode_leave(frame))
            case FrameKey.SUSPECT:
                connection.suspects(decode_suspect(frame))
            case _:
                raise MalformedFrame(f"{key.name}, which only a leader may send")

    def epoch_of(self, broker_id: int) -> int | None:
        """Return the broker epoch of the connected incarnation; None if there is none."""
        channel = self._by_broker.get(broker_id)
        return None if channel is None else self._by_channel[channel].broker_epoch

    def _read(self, channel: Channel, hello: Open, read: ReadRequest) -> None:
        if self._may_ask(channel, hello):
            self._ranges.answer(channel, read)

    def _may_ask(self, channel: Channel, hello: Open) -> bool:
        refusal = self._check_peer(hello)
        if refusal is not None:
            _events.info("follower.refused", broker=hello.broker_id, reason=refusal)
            channel.close()
        return refusal is None

    def _open(self, channel: Channel, hello: Open) -> None:
        if not self._may_ask(channel, hello):
            return
        if channel in self._by_channel:
            # As another broker it would leave streams that never end.
            raise MalformedFrame("a second introduction")
        before = self._by_broker.get(hello.broker_id)
        if before is not None:
            self._closed(before)
            before.close()
        connection = FollowerConnection(channel, hello, self._replicas, self._end_of_tick, self._limits)
        self._by_channel[channel] = connection
        self._by_broker[hello.broker_id] = channel
        channel.on_closed = lambda: self._closed(channel)

    def _closed(self, channel: Channel) -> None:
        connection = self._by_channel.pop(channel, None)
        if connection is not None:
            connection.close()
            if self._by_broker.get(connection.broker_id) is channel:
                del self._by_broker[connection.broker_id]
