"""Limits on HTTP requests in progress: body type, size and time, and the number of streams."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.resources.memory import MemoryPool

JSON = "application/json"
BYTES = "application/octet-stream"

HEADER_BYTES_MAX = 8190
"""The limit of one header, as in most proxies. A client returns an event's id in a header."""
BODY_BYTES_MAX = 8 << 20
JSON_BYTES_MAX, JSON_COMMAS_MAX = 1 << 20, 20_000
"""The limits of a JSON body that is decoded at once, without yielding to the event loop: it takes up to 10 ms."""
BODY_S = 30.0
"""The time limit for receiving a body."""
PIECE_BYTES = 8 << 10
"""Bytes of a body that are taken at once: some 6 ms, if each came as a chunk of its own."""
TURN_S = 1.0
"""The time after which a client that takes nothing of a large record is disconnected, if others wait for theirs."""
STREAMS_MAX = 48
"""The limit of record readers. Each holds about 2 MB at most with batches of the usual size."""


def check_content_type(request: web.Request, allowed: tuple[str, ...]) -> None:
    """Check the content type. Raises HttpRefusal.

    The form types, the only ones that a page of another site can send, are not allowed.
    """
    if "Content-Type" not in request.headers or request.content_type not in allowed:
        raise HttpRefusal(415, f"Send the body as Content-Type: {' or '.join(allowed)}.")
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise HttpRefusal(415, "Send the body in UTF-8.")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "Send the body without a Content-Encoding: it is not decompressed.")


class Bodies:
    """The request bodies in memory. Each is held until its request has been handled."""

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def read(self, request: web.Request, bytes_max: int = BODY_BYTES_MAX) -> AsyncIterator[bytes]:
        """Receive the whole body, and hold it while the block runs. Raises HttpRefusal.

        Only received bytes count: a client that announces a large body and sends nothing takes no memory from others.
        """
        if (request.content_length or 0) > bytes_max:
            raise _too_large(bytes_max)
        content = bytearray()
        try:
            await self._receive(request, content, bytes_max)
            yield bytes(content)
        finally:
            self._pool.used -= len(content)

    async def _receive(self, request: web.Request, content: bytearray, bytes_max: int) -> None:
        try:
            async with asyncio.timeout(BODY_S):
                while piece := await request.content.read(PIECE_BYTES):
                    content += piece
                    self._pool.used += len(piece)
                    self._check(content, bytes_max)
                    if len(piece) == PIECE_BYTES:
                        await asyncio.sleep(0)
        except TimeoutError:
            raise HttpRefusal(408, f"The body did not arrive within {BODY_S:.0f} s: send the request again.") from None

    def _check(self, content: bytearray, bytes_max: int) -> None:
        if len(content) > bytes_max:
            raise _too_large(bytes_max)
        if not self._pool.has_room(0):
            self._pool.waits += 1
            sentence = "This broker is receiving too many request bodies: send the request again later."
            raise HttpRefusal(429, sentence, ErrorCode.throttling_quota_exceeded)


def check_json_size(content: bytes) -> None:
    """Refuse a body with more values than are decoded at once. Raises HttpRefusal."""
    if content.count(b",") > JSON_COMMAS_MAX:
        sentence = f"The body has more than {JSON_COMMAS_MAX} commas: send fewer values in one request."
        raise HttpRefusal(413, sentence, ErrorCode.message_too_large)


class Streams:
    """The streaming responses in progress."""

    def __init__(self) -> None:
        self._count = 0
        self._large_record = asyncio.Lock()
        self._taker: asyncio.Transport | None = None
        """The client that is sent a large record."""

    @asynccontextmanager
    async def large_record(self, taker: asyncio.Transport | None = None) -> AsyncIterator[None]:
        """Have the one large record in memory while the block runs: until it is sent to `taker`, if that is given.

        While others wait for their turn, a taker that reads nothing for TURN_S is disconnected.
        """
        await self._take_turn()
        self._taker = taker
        try:
            yield
        finally:
            self._taker = None
            self._large_record.release()

    async def _take_turn(self) -> None:
        while True:
            taker, unsent = self._taker, _unsent(self._taker)
            try:
                async with asyncio.timeout(TURN_S):
                    await self._large_record.acquire()
                    return
            except TimeoutError:
                if taker is not None and taker is self._taker and 0 < unsent <= _unsent(taker):
                    taker.abort()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one more stream while the block runs. Raises HttpRefusal above STREAMS_MAX."""
        if self._count >= STREAMS_MAX:
            sentence = f"This broker already serves {STREAMS_MAX} readers: use another broker, or try again later."
            raise HttpRefusal(429, sentence, ErrorCode.throttling_quota_exceeded)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


def _unsent(taker: asyncio.Transport | None) -> int:
    return 0 if taker is None or taker.is_closing() else taker.get_write_buffer_size()


def _too_large(bytes_max: int) -> HttpRefusal:
    sentence = f"The body is larger than {bytes_max} bytes: send less, such as fewer records, in one request."
    return HttpRefusal(413, sentence, ErrorCode.message_too_large)
