"""A broker with an HTTP listener, shared by a file's tests; each test creates its own topics and groups."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker, free_port
from closed_http_broker import ClosedBroker, closed_broker
from http_client import HttpClient


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Yield a one-node broker; its settings have `http.listen`."""
    data = tmp_path_factory.mktemp("served") / "data"
    broker = RunningBroker(data, http_listen=f"127.0.0.1:{free_port()}").start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedBroker]:
    """Yield a broker whose HTTP listener requires a login; alice has the password `secret`, and no rights."""
    with closed_broker(tmp_path_factory.mktemp("closed")) as broker:
        broker.add_user("alice", "secret")
        yield broker


@pytest.fixture
def api(served: RunningBroker) -> HttpClient:
    """Return a client of that broker."""
    return HttpClient(served.settings["http.listen"])
