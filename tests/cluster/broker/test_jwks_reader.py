"""Reading an identity provider's keys: from a file and over https, and what a broken or hostile endpoint can do."""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from identity_provider import key_set_text, rsa_key
from quorum_fixture import run_here
from virtual_time import run

from cordwood.cluster.broker.jwks_reader import FETCH_S, JwksReader, fetch_https, fetch_of
from cordwood.cluster.security.bearer import TokenRefused
from cordwood.cluster.security.jwks import JWKS_BYTES_MAX, KeyCache, RefreshTimes, UnusableKeys

AUTHORITY = trustme.CA()
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata="")
    AUTHORITY.configure_trust(context)
    return context


@asynccontextmanager
async def endpoint(answer: Answer, *, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve an answer at every path over https, with a certificate for `host`. Yield the address."""
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert(host).configure_cert(context)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    yield f"https://127.0.0.1:{port}/keys"
    await runner.cleanup()


async def usual(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=key_set_text())


def test_keys_are_read_over_https() -> None:
    async def story() -> None:
        async with endpoint(usual) as url:
            assert await fetch_https(url, trusting()) == key_set_text()

    asyncio.run(story())


def refused(answer: Answer, reason: str, *, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
    async def story() -> None:
        async with endpoint(answer, host=host) as url:
            with pytest.raises((UnusableKeys, OSError), match=reason):
                await fetch_https(url, context or trusting())

    asyncio.run(story())


def test_a_redirect_is_not_followed() -> None:
    seen = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        raise web.HTTPFound("/other")

    refused(elsewhere, "status 302: redirects are not followed")
    assert seen == ["/keys"]


@pytest.mark.parametrize("status", [204, 401, 404, 500])
def test_another_status_is_a_failure(status: int) -> None:
    async def failing(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=b"" if status == 204 else key_set_text())

    refused(failing, f"status {status}")


def test_a_huge_answer_is_cut() -> None:
    async def huge(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(8 * JWKS_BYTES_MAX // 65536):
            await response.write(b" " * 65536)
        return response

    refused(huge, f"larger than {JWKS_BYTES_MAX}")


def test_a_compressed_answer_is_not_unpacked() -> None:
    async def packed(_request: web.Request) -> web.StreamResponse:
        response = web.Response(body=b" " * (JWKS_BYTES_MAX + 1) * 8)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def story() -> None:
        async with endpoint(packed) as url:
            assert len(await fetch_https(url, trusting())) < JWKS_BYTES_MAX

    asyncio.run(story())


def test_a_certificate_of_another_host_or_authority_is_refused() -> None:
    refused(usual, "(?i)certificate", host="id.example.org")
    refused(usual, "(?i)certificate", context=ssl.create_default_context())


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys of ours.json"
    path.write_bytes(key_set_text())
    path.chmod(0o400)
    fetch = fetch_of(path.as_uri(), run_here, None)
    assert asyncio.run(_awaited(fetch())) == key_set_text()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        asyncio.run(_awaited(fetch()))


def test_authorities_that_cannot_be_read_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        fetch_of("https://id.example.org/keys", run_here, str(tmp_path / "missing.pem"))


async def _awaited(reading: Awaitable[bytes]) -> bytes:
    return await reading


class Scripted:
    """A provider whose answers the test chooses, in virtual time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.cache = KeyCache(RefreshTimes(3600, 0.1, 10), random.Random(1))
        self.times: list[float] = []
        self.answer: bytes | Exception | None = key_set_text()
        """None for an endpoint that never answers."""
        self.reader = JwksReader("https://id.example.org/keys", self._fetch, self.cache, run_here)

    async def _fetch(self) -> bytes:
        self.times.append(self.loop.time())
        if self.answer is None:
            await asyncio.sleep(1e6)
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer

    def knows(self, name: str) -> bool:
        try:
            return self.cache.find(name, "RS256").kid == name
        except TokenRefused:
            return False


def test_the_keys_are_known_when_the_broker_serves() -> None:
    async def story() -> None:
        provider = Scripted()
        await provider.reader.start()
        assert provider.knows("first")
        await asyncio.sleep(3601)
        assert len(provider.times) == 2
        await provider.reader.close()

    run(story())


def test_a_broker_starts_without_its_identity_provider_and_finds_it_later() -> None:
    async def story() -> None:
        provider = Scripted()
        provider.answer = None
        begun_s = provider.loop.time()
        await provider.reader.start()
        assert provider.loop.time() - begun_s < FETCH_S
        assert not provider.knows("first"), "without keys, no token is accepted"
        provider.answer = key_set_text()
        await asyncio.sleep(FETCH_S)
        assert provider.knows("first")
        await provider.reader.close()

    run(story())


@pytest.mark.parametrize("answer", [None, OSError("refused"), UnusableKeys("status 500"), b"<html>", b'{"keys": 7}'])
def test_a_failing_provider_leaves_the_keys_and_is_not_flooded(answer: bytes | Exception | None) -> None:
    async def story() -> None:
        provider = Scripted()
        await provider.reader.start()
        provider.answer = answer
        await asyncio.sleep(3600 + 600)
        assert provider.knows("first")
        assert len(provider.times) < 600 / 8 + 20
        provider.answer = key_set_text(rsa_key("second"))
        await asyncio.sleep(10 + FETCH_S)
        assert provider.knows("second")
        assert not provider.knows("first")
        await provider.reader.close()

    run(story())


def test_a_new_key_is_found_in_seconds_and_made_up_ones_do_not_flood() -> None:
    async def story() -> None:
        provider = Scripted()
        await provider.reader.start()
        provider.answer = json.dumps({"keys": json.loads(key_set_text(rsa_key(), rsa_key("second")))["keys"]}).encode()
        await asyncio.sleep(60)
        assert not provider.knows("second"), "this token comes too early, and makes the broker read the keys"
        await asyncio.sleep(0.1)
        assert provider.knows("second")
        before = len(provider.times)
        for number in range(1000):
            assert not provider.knows(f"made-up-{number}")
            await asyncio.sleep(0.1)
        assert len(provider.times) - before <= 11
        await provider.reader.close()

    run(story())
