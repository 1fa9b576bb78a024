"""A client's connection to a broker: pipelined Kafka requests over a channel of the broker."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from cordwood.client.codec import BadResponse, ClientCodec, begin_of_response, decode_response
from cordwood.cluster.kafka.message_reader import reading
from cordwood.replication.channel import Channel
from cordwood.storage.steps import Steps

LISTINGS = frozenset(
    {ListGroupsRequest, ListTransactionsRequest, ConsumerGroupDescribeRequest, ShareGroupDescribeRequest}
)
"""Requests whose responses may have a hundred thousand rows."""
AT_ONCE_BYTES_MAX = 64 << 10
"""A larger response to one of them is decoded in steps: this many bytes take a millisecond."""


class EncodedResponse(NamedTuple):
    """A response that is not decoded yet."""

    request: type
    frame: bytes

    def decoding(self) -> Steps[Any]:
        """Decode it in steps. Raises Malformed."""
        frame = memoryview(self.frame)
        schema, position = begin_of_response(self.request, frame)
        # A broker is trusted with memory.
        return reading(schema, frame, position, len(frame))


class HungUp(Exception):
    """The connection ended before the response arrived: the outcome of the request is unknown."""


class ClientConnection:
    """The client side of one connection. The channel cuts the frames."""

    def __init__(self, client_id: str) -> None:
        self._channel: Channel | None = None
        self._codec = ClientCodec[asyncio.Future[Any]](client_id, decode=_decoded)

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
        """Send a kio request; `body` is what it is encoded as, if it is. The future gets the response, or HungUp.

        A large response to one of LISTINGS is an EncodedResponse.
        """
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
                # The caller may have been cancelled: mark the exception as retrieved.
                future.exception()


def _decoded(request: type, frame: memoryview) -> Any:
    if request in LISTINGS and len(frame) > AT_ONCE_BYTES_MAX:
        return EncodedResponse(request, bytes(frame))
    return decode_response(request, frame)
