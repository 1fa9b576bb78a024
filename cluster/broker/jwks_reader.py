"""The reader of the identity provider's key set: a file or an https address, read again when the key cache asks.

Both come from the broker's own configuration file. Nothing that a client sends chooses an address: redirects are not
followed, and the addresses in a token's header are not looked at.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import structlog

from cordwood.cluster.security.jwks import JWKS_BYTES_MAX, KeyCache, UnusableKeys, parse
from cordwood.replication.tasks import RunBlocking, Tasks

FETCH_S = 10.0
"""The longest time of one reading."""
FIRST_S = 3.0
"""The longest time for which a starting broker waits for the first key set."""

Fetch = Callable[[], Awaitable[bytes]]
"""Return the text of the key set. Raises OSError or UnusableKeys."""

_events = structlog.get_logger("jwks")


class JwksReader:
    """Reads the key set into a cache, until `close`."""

    def __init__(self, url: str, fetch: Fetch, cache: KeyCache, run_blocking: RunBlocking) -> None:
        self._url, self._fetch, self._cache, self._run_blocking = url, fetch, cache, run_blocking
        self._loop, self._tasks = asyncio.get_running_loop(), Tasks()
        self._sooner, self._first = asyncio.Event(), asyncio.Event()
        cache.came_forward = self._sooner.set

    async def start(self) -> None:
        """Begin to read. Wait for the first key set, but not long: a broker starts without an identity provider."""
        self._tasks.repeat(self._next, "jwks")
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._first.wait()

    async def close(self) -> None:
        await self._tasks.close()

    async def _next(self) -> None:
        await self._until_due()
        try:
            async with asyncio.timeout(FETCH_S):
                text = await self._fetch()
            keys = await self._run_blocking(parse, text)
        except (OSError, UnusableKeys, ssl.SSLError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            _events.warning("jwks.unread", url=self._url, reason=reason, consequence="the keys before stay valid")
            self._cache.failed(self._loop.time())
        else:
            self._cache.read(keys, self._loop.time())
            _events.info("jwks.read", url=self._url, keys=keys.count)
            for sentence in keys.ignored:
                _events.warning("jwks.key_ignored", url=self._url, reason=sentence)
        self._first.set()

    async def _until_due(self) -> None:
        while (left_s := self._cache.next_s - self._loop.time()) > 0:
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._sooner.wait()


def fetch_of(url: str, run_blocking: RunBlocking, authorities: str | None) -> Fetch:
    """Return the function that reads the key set at an address of the configuration.

    `authorities` is a PEM file of the certificate authorities of an https address; None for those of the system.
    Raises OSError if that file cannot be read.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return lambda: run_blocking(_read_file, unquote(parts.path))
    context = ssl.create_default_context(cafile=authorities)
    return lambda: fetch_https(url, context)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(JWKS_BYTES_MAX + 1)


async def fetch_https(url: str, context: ssl.SSLContext) -> bytes:
    """Read an address, without redirects and compression. Raises OSError or UnusableKeys."""
    import aiohttp

    headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
    try:
        connector = aiohttp.TCPConnector(ssl=context, limit=1, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, auto_decompress=False, headers=headers) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                hint = ": redirects are not followed" if 300 <= answer.status < 400 else ""
                raise UnusableKeys(f"the answer has status {answer.status}{hint}")
            text = b""
            async for piece in answer.content.iter_any():
                text += piece
                if len(text) > JWKS_BYTES_MAX:
                    raise UnusableKeys(f"it is larger than {JWKS_BYTES_MAX} bytes")
            return text
    except aiohttp.ClientError as error:
        raise UnusableKeys(str(error) or type(error).__name__) from error
