"""Fixtures for the tests of every client: a broker with short group timeouts, topics, and a broker and its proxy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from confluent_kafka import Producer
from cutting_proxy import CuttingProxy
from topics import make_topic


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Yield one broker for a file's tests, which do not change its state."""
    broker = RunningBroker(
        tmp_path_factory.mktemp("shared") / "data",
        group_min_session_timeout_ms="1000",
        group_initial_rebalance_delay_ms="0",
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def topic(shared: RunningBroker, request: pytest.FixtureRequest) -> str:
    """Create a topic of three partitions on the shared broker, named after the test."""
    return make_topic(shared.bootstrap, name_of(request), 3)


@pytest.fixture
def group_topic(shared: RunningBroker, request: pytest.FixtureRequest) -> str:
    """Create a topic of six partitions for groups, named after the test."""
    return make_topic(shared.bootstrap, name_of(request), 6)


@pytest.fixture
def behind_a_proxy(tmp_path: Path) -> Iterator[tuple[RunningBroker, CuttingProxy]]:
    """Yield a broker whose advertised listener is a proxy that can cut connections."""
    broker = RunningBroker(tmp_path / "data")
    with CuttingProxy(broker.port) as proxy:
        broker.settings["advertised.listeners"] = f"PLAINTEXT://{proxy.bootstrap}"
        broker.start()
        make_topic(proxy.bootstrap, "numbers", 2)
        yield broker, proxy
        proxy.heal()
        broker.stop()


def name_of(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)


@pytest.fixture
def send_to_all(shared: RunningBroker, group_topic: str) -> Callable[[], dict[int, int]]:
    """Return a function that produces ten records to each partition of the group's topic and returns their ends."""
    producer = Producer({"bootstrap.servers": shared.bootstrap, "linger.ms": 5})
    ends = dict.fromkeys(range(6), 0)

    def send() -> dict[int, int]:
        for index in ends:
            for _ in range(10):
                producer.produce(group_topic, b"record", partition=index)
        assert producer.flush(15) == 0
        for index in ends:
            ends[index] += 10
        return dict(ends)

    return send
