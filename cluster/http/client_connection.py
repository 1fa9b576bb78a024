"""A client's connection to a broker: pipelined Kafka requests, answered in order."""

import asyncio
from collections import deque
from collections.abc import Callable

from cordwood.cluster.kafka.questions import correlation_id_of
from cordwood.cluster.kafka.wire import Malformed
from cordwood.replication.channel import Channel

CLIENT_ID = b"http"


class HungUp(Exception):
    """The broker closed the connection before it responded: the outcome of the request is unknown."""


class ClientConnection:
    """The client side of one connection. Brokers respond in order, so each response is for the oldest request."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._next_id = 0

    @property
    def is_open(self) -> bool:
        return self._channel is not None and self._channel.is_open

    @property
    def is_idle(self) -> bool:
        """True if the connection is open and every request has its response."""
        return self.is_open and not self._waiting

    def begin(self, channel: Channel) -> None:
        """Use this channel, which passes its frames to `received`."""
        self._channel = channel
        channel.on_closed = self._lost

    def ask(self, encode: Callable[[int], list[bytes]]) -> "asyncio.Future[bytes]":
        """Send the request that `encode` makes for a correlation id. The future gets the response frame, or HungUp."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._channel is None or not self._channel.is_open:
            future.set_exception(HungUp("the connection to the broker is closed"))
            return future
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._waiting.append((self._next_id, future))
        self._channel.push(list(encode(self._next_id)))
        return future

    def received(self, frame: memoryview) -> None:
        """Take a response frame. It is copied, since its buffer is reused."""
        try:
            correlation_id = correlation_id_of(frame)
        except Malformed as malformed:
            self._end(str(malformed))
            return
        if not self._waiting or self._waiting[0][0] != correlation_id:
            self._end(f"a response to request {correlation_id}, which is not the oldest one")
            return
        _, future = self._waiting.popleft()
        if not future.done():
            future.set_result(bytes(frame))

    def close(self) -> None:
        """Close the connection. Pending requests fail with HungUp."""
        self._end(None)

    def _end(self, reason: str | None) -> None:
        if self._channel is not None:
            self._channel.close(reason)
        self._lost()

    def _lost(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(HungUp("the broker closed the connection"))
                # The caller may be gone: mark the exception as retrieved.
                future.exception()
