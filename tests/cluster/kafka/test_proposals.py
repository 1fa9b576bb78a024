"""Handlers with an undecided proposal: the error code is retriable, and never says that nothing was changed."""

from collections.abc import Iterator

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode
from quorum_in_memory import MetadataLog

from cordwood.cluster.kafka.handlers import create_topics, metadata


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """Yield a broker with metadata whose quorum has no leader."""
    fixture = AdminFixture()
    log = MetadataLog()
    log.image = fixture.image
    fixture.services.quorum = log.voter(1)
    yield fixture
    fixture.close()


def test_a_topic_may_have_been_created(admin: AdminFixture) -> None:
    wanted = {"name": "flights", "num_partitions": 1, "replication_factor": 1}
    (result,) = admin.ask(create_topics, 7, topics=[wanted]).topics
    assert (result.error_code, result.error_message) == (ErrorCode.request_timed_out, "no leader")


def test_who_asks_for_a_topic_that_may_come_into_being_asks_again(admin: AdminFixture) -> None:
    (topic,) = admin.ask(metadata, 12, topics=[{"name": "new"}], allow_auto_topic_creation=True).topics
    assert topic.error_code is ErrorCode.leader_not_available
