"""The event-loop budget: no request of any API, with thousands of items, holds the loop for long (ADR 25)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from large_requests import LargeRequest, large_requests
from loop_steps import LongestStep

from cordwood.bench.counters.cluster import CountedCluster
from cordwood.chaos.sim.loop import run
from cordwood.cluster.groups.heartbeat import SUBSCRIBED_NAMES_MAX
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.wire import ITEMS_MAX

ITEMS = 3000
SHARE_ITEMS = 12_000
SHARE_APIS = frozenset(
    {
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""APIs whose requests keep what they name for later ones, or ask a share coordinator for each partition."""
CALLS_MAX = 30_000
"""Calls in one step of the loop; about 5 ms on a slow machine."""
CALLS_AT_LIMIT_MAX = 100_000
"""Calls in the longest step of a request with as many items as its API takes, by its growth between half of ITEMS and
ITEMS."""
LIMITS = {str(request): request.items for request in large_requests(ITEMS_MAX)}
"""The items that the decoder lets through. Some handlers refuse fewer before they look at them (OWN_LIMITS)."""
OWN_LIMITS = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: SUBSCRIBED_NAMES_MAX,
    ApiKey.SHARE_GROUP_HEARTBEAT: SUBSCRIBED_NAMES_MAX,
}
SMALL_CALLS = 4000
"""A step with fewer calls has not even two for each item."""
FAST_PATH = {ApiKey.PRODUCE, ApiKey.FETCH}
"""Handled at once up to a number of items, which is below half of their limits."""


class Stranger(asyncio.Protocol):
    """A connection that sends one frame and waits for a response or the end of the connection."""

    def __init__(self) -> None:
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= 4 and len(self._received) >= 4 + int.from_bytes(self._received[:4], "big"):
            self.done.set_result(len(self._received))

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(0)


async def ask(cluster: CountedCluster, frame: bytes) -> int:
    """Return the number of bytes of the response; 0 if the broker hung up."""
    opened: Any = await asyncio.get_running_loop().create_connection(Stranger, *cluster.leader(0))
    transport, stranger = opened
    transport.write(len(frame).to_bytes(4, "big") + frame)
    return int(await asyncio.wait_for(stranger.done, 600))


def longest_step(request: LargeRequest) -> tuple[int, int]:
    """Return the calls of the broker's longest step, and the size of its response."""
    frame = request.frame()

    async def story() -> tuple[int, int]:
        cluster = await CountedCluster(1).begin()
        with LongestStep() as longest:
            size = await cluster.by(ask(cluster, frame), "stranger")
        return longest.calls, size

    return run(story())


@pytest.mark.parametrize("request_", large_requests(ITEMS), ids=str)
def test_a_request_of_thousands_of_items_lets_others_in(request_: LargeRequest) -> None:
    calls, answer_bytes = longest_step(request_)
    assert answer_bytes, "it was refused"
    assert calls < CALLS_MAX, str(request_)
    if calls > SMALL_CALLS and not request_.is_same and request_.api.KEY not in FAST_PATH:
        half = request_.items // 2
        of_half, _ = longest_step(replace(request_, items=half))
        by_item = max(calls - of_half, 0) / (request_.items - half)
        limit = OWN_LIMITS.get(request_.api.KEY, LIMITS[str(request_)])
        at_limit = calls + by_item * (limit - request_.items)
        assert at_limit < CALLS_AT_LIMIT_MAX, f"{request_}: the longest step grows by {by_item:.1f} calls an item"


def of_share_groups() -> list[LargeRequest]:
    """Return the newest requests of SHARE_APIS, each with SHARE_ITEMS different items."""
    return [
        request
        for request in large_requests(SHARE_ITEMS)
        if request.api.KEY in SHARE_APIS and request.version == request.api.KEY.versions[-1] and not request.is_same
    ]


@pytest.mark.parametrize("request_", of_share_groups(), ids=str)
def test_what_a_share_group_is_asked_to_keep_lets_others_in(request_: LargeRequest) -> None:
    test_a_request_of_thousands_of_items_lets_others_in(request_)
