"""What the tests of every client share: a broker with quick groups, its topics, and a broker behind a cutting proxy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from confluent_kafka import Producer
from cutting_proxy import CuttingProxy
from topics import make_topic


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for the tests of a file that leave it as it is."""
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
    """A topic of three partitions of the shared broker, named after the test."""
    return make_topic(shared.bootstrap, name_of(request), 3)


@pytest.fixture
def group_topic(shared: RunningBroker, request: pytest.FixtureRequest) -> str:
    """One of six partitions, for groups."""
    return make_topic(shared.bootstrap, name_of(request), 6)


@pytest.fixture
def behind_a_proxy(tmp_path: Path) -> Iterator[tuple[RunningBroker, CuttingProxy]]:
    """A broker that tells clients to connect to a proxy, which can cut their connections."""
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
    """Sends ten records to each partition of the group's topic and returns where the partitions end."""
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
