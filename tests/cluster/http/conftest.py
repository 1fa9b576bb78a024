"""A broker that listens for HTTP, shared by the tests of a file: each makes topics and groups of its own."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker, free_port
from http_client import HttpClient


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker of one node; `http_listen` is in its settings."""
    data = tmp_path_factory.mktemp("served") / "data"
    broker = RunningBroker(data, http_listen=f"127.0.0.1:{free_port()}").start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def api(served: RunningBroker) -> HttpClient:
    """A client of that broker."""
    return HttpClient(served.settings["http.listen"])
