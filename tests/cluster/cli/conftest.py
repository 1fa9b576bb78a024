"""A broker that the tests of a file share: each leaves it running, and its topics are deleted."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker
from confluent_kafka.admin import AdminClient

ANSWER_S = 15.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Run one broker for all tests of a file."""
    running = RunningBroker(tmp_path_factory.mktemp("shared") / "data").start()
    yield running
    running.stop()


@pytest.fixture
def broker(shared: RunningBroker) -> Iterator[RunningBroker]:
    """Yield the file's broker, without topics. Groups stay: each test has one of its own."""
    yield shared
    admin = AdminClient({"bootstrap.servers": shared.bootstrap})
    topics = [name for name in admin.list_topics(timeout=ANSWER_S).topics if not name.startswith("__")]
    for deleted in admin.delete_topics(topics).values() if topics else ():
        deleted.result(ANSWER_S)
