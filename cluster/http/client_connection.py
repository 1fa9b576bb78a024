"""Questions and their answers over one connection to a broker, in the order in which they are asked."""

import asyncio
from collections import deque
from collections.abc import Callable

from cordwood.cluster.kafka.questions import correlation_id_of
from cordwood.cluster.kafka.wire import Malformed
from cordwood.replication.channel import Channel

CLIENT_ID = b"http"


class HungUp(Exception):
    """The broker ended the connection before it answered: whether it did what was asked is not known."""


class ClientConnection:
    """A client's view of one connection. Brokers answer in order, so the oldest question is the next one answered."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._next_id = 0

    @property
    def is_open(self) -> bool:
        return self._channel is not None and self._channel.is_open

    @property
    def is_idle(self) -> bool:
        """Whether every question has been answered."""
        return self.is_open and not self._waiting

    def begin(self, channel: Channel) -> None:
        """Talk over this channel, whose frames are given to `received`."""
        self._channel = channel
        channel.on_closed = self._lost

    def ask(self, encode: Callable[[int], list[bytes]]) -> "asyncio.Future[bytes]":
        """Send the frame that `encode` makes for a correlation id. The answer is a frame; HungUp where none comes."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._channel is None or not self._channel.is_open:
            future.set_exception(HungUp("the connection to the broker is closed"))
            return future
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self._waiting.append((self._next_id, future))
        self._channel.push(list(encode(self._next_id)))
        return future

    def received(self, frame: memoryview) -> None:
        """An answer has come; it is copied, since its buffer is used again."""
        try:
            correlation_id = correlation_id_of(frame)
        except Malformed as malformed:
            self._end(str(malformed))
            return
        if not self._waiting or self._waiting[0][0] != correlation_id:
            self._end(f"an answer to question {correlation_id}, which was not the next one")
            return
        _, future = self._waiting.popleft()
        if not future.done():
            future.set_result(bytes(frame))

    def close(self) -> None:
        """Hang up. Who still waits is told so."""
        self._end(None)

    def _end(self, reason: str | None) -> None:
        if self._channel is not None:
            self._channel.close(reason)
        self._lost()

    def _lost(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(HungUp("the broker ended the connection"))
                # Whoever asked may have gone: then nobody has to hear of it.
                future.exception()
