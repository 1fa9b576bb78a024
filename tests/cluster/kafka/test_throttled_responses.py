"""Throttled responses of every version, and the request percentage, for which the test says how long requests take."""

import asyncio
from typing import Any

import fetch_requests
import produce_requests
import pytest
from handlers_fixture import HandlersStory, tell
from roles_fixture import TOPIC

from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.handlers import fetch, produce
from cordwood.cluster.metadata.client_quotas import Entity
from cordwood.cluster.security.principal import NO_IDENTITY, THIS_BROKER, Identity

SHARE: dict[Entity, dict[str, float]] = {(("user", "ANONYMOUS"),): {"request_percentage": 10.0}}
HEAD = RequestHead(api_key=3, version=1, correlation_id=1, client_id="client", body=0)


def throttle_ms(response: Any) -> int:
    return int(response.throttle_time.total_seconds() * 1000)


def spend(broker: HandlersStory, seconds: float, identity: Identity = NO_IDENTITY) -> None:
    """Let a request take its time on the event loop."""
    broker.throttle.took(HEAD, identity, seconds)


@pytest.mark.parametrize("version", [version for version in produce.KEY.versions if version < 13])
@pytest.mark.parametrize("partitions", [1, 2])
def test_every_version_of_produce_states_the_throttle_time(version: int, partitions: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.throttle.follow(SHARE)
        spend(broker, 0.15)
        # A partition that does not exist makes the response one of several partitions.
        data = tuple({"index": index, "records": produce_requests.batch()} for index in range(partitions))
        topic = {"name": TOPIC, "topic": TOPIC, "partition_data": data}
        answer = broker.client.send(
            produce.KEY, version, acks=1, timeout=fetch_requests.milliseconds(1000), topic_data=(topic,)
        )
        await broker.sync()
        assert throttle_ms(await answer) == pytest.approx(500, abs=5)

    tell(story)


@pytest.mark.parametrize("version", [version for version in fetch.KEY.versions if version <= fetch_requests.NAMED])
def test_every_version_of_fetch_states_the_throttle_time(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a")
        broker.throttle.follow(SHARE)
        spend(broker, 0.15)
        response = await fetch_requests.fetch(broker, fetch_requests.wanted(), version=version)
        assert throttle_ms(response) == pytest.approx(500, abs=5)
        assert response.responses, "only the quota of bytes refuses data"

    tell(story)


def test_a_share_of_the_loop_throttles_for_a_window_at_most() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.throttle.follow(SHARE)
        spend(broker, 60.0)
        assert throttle_ms(await fetch_requests.fetch(broker, fetch_requests.wanted())) == 1000
        began = asyncio.get_running_loop().time()
        await fetch_requests.fetch(broker, fetch_requests.wanted())
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.01)

    tell(story)


def test_the_brokers_own_requests_count_for_no_quota() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.throttle.follow(SHARE)
        spend(broker, 60.0, THIS_BROKER)
        assert throttle_ms(await fetch_requests.fetch(broker, fetch_requests.wanted())) == 0

    tell(story)


def test_a_throttled_fetch_keeps_its_session() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a", "b")
        first = await fetch_requests.fetch(
            broker, fetch_requests.wanted(), session=(fetch_requests.NO_SESSION, fetch_requests.INITIAL)
        )
        broker.throttle.follow({(("user", "ANONYMOUS"),): {"consumer_byte_rate": 10.0}})
        second = await fetch_requests.fetch(broker, session=(first.session_id, 1))
        assert (throttle_ms(second), second.session_id) == (0, first.session_id)
        third = await fetch_requests.fetch(broker, session=(first.session_id, 2))
        assert (throttle_ms(third) > 0, third.session_id, third.responses) == (True, first.session_id, ())
        fourth = await fetch_requests.fetch(broker, session=(first.session_id, 3))
        assert fourth.responses, "after its throttle time it gets the records"

    tell(story)
