"""A client's connection to a broker: pipelined Kafka requests over a channel of the broker."""

import asyncio
from collections.abc import Sequence
from typing import Any

from cordwood.client.codec import BadResponse, ClientCodec
from cordwood.replication.channel import Channel


class HungUp(Exception):
    """The connection ended before the response arrived: the outcome of the request is unknown."""


class ClientConnection:
    """The client side of one connection. The channel cuts the frames."""

    def __init__(self, client_id: str) -> None:
        self._channel: Channel | None = None
        self._codec = ClientCodec[asyncio.Future[Any]](client_id)

    @property
    def is_open(self) -> bool:
        return self._channel is not None and self._channel.is_open

    @property
    def is_idle(self) -> bool:
        """True if the connection is open and every request has its response."""
        return self.is_open and self._codec.is_idle

    def begin(self, channel: Channel) -> None:
        """Use this channel, which passes its frames to `received`."""
        self._channel = channel
        channel.on_closed = self._lost

    def ask(self, request: Any, body: Sequence[bytes] | None = None) -> "asyncio.Future[Any]":
        """Send a kio request; `body` is what it is encoded as, if it is. The future gets the response, or HungUp."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._channel is None or not self._channel.is_open:
            future.set_exception(HungUp("the connection to the broker is closed"))
        else:
            codec = self._codec
            encoded = [codec.encode(request, future)] if body is None else codec.frame(request, body, future)
            self._channel.push([*encoded])
        return future

    def received(self, frame: memoryview) -> None:
        """Take a response frame, whose buffer is reused. Close the connection if it is not the response that is due."""
        try:
            future, response = self._codec.take(frame)
        except BadResponse as bad:
            self._end(str(bad))
            return
        if not future.done():
            future.set_result(response)

    def close(self) -> None:
        """Close the connection. Pending requests fail with HungUp."""
        self._end(None)

    def _end(self, reason: str | None) -> None:
        if self._channel is not None:
            self._channel.close(reason)
        self._lost()

    def _lost(self) -> None:
        for future in self._codec.abandon():
            if not future.done():
                future.set_exception(HungUp("the broker closed the connection"))
                # The caller may be gone: mark the exception as retrieved.
                future.exception()
