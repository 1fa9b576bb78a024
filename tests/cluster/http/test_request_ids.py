"""HTTP request ids: each response has the client's id or a generated one."""

import aiohttp
import pytest
from http_fixture import LOOPBACK, HttpStory, run

from cordwood.cluster.http.server import REQUEST_ID


async def reported_name(broker: HttpStory, path: str, name: str | None = None) -> str:
    """Return the request id in the response, for a request with the id `name` if given."""
    headers = {} if name is None else {REQUEST_ID: name}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{LOOPBACK}:{broker.port}{path}", headers=headers) as response,
    ):
        return response.headers[REQUEST_ID]


def test_a_request_id_of_a_client_is_echoed() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            assert await reported_name(broker, "/healthz", "order-17:42") == "order-17:42"
            assert await reported_name(broker, "/nowhere", "order-18") == "order-18"

    run(story())


def test_others_are_numbered() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            first, second = int(await reported_name(broker, "/healthz")), int(await reported_name(broker, "/healthz"))
            assert second > first

    run(story())


@pytest.mark.parametrize("name", ["", "two words", "level=error", "x" * 101], ids=repr)
def test_what_would_disturb_the_log_is_no_name(name: str) -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            assert (await reported_name(broker, "/healthz", name)).isdigit()

    run(story())
