"""ElectLeaders in every version: nothing here needs an election, and it is said so in Kafka's words."""

from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import elect_leaders
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),) * 2))
    return admin


def elect(
    admin: AdminFixture, version: int, election: int, topic: str = "flights"
) -> tuple[str, list[tuple[int, ErrorCode]]]:
    wanted = ({"topic": topic, "partitions": (0, 1, 2)},)
    response = admin.ask(elect_leaders, version, election_type=election, topic_partitions=wanted)
    (result,) = response.replica_election_results
    return result.topic, [(row.partition_id, row.error_code) for row in result.partition_result]


@pytest.mark.parametrize("version", elect_leaders.VERSIONS)
@pytest.mark.parametrize("election", [PREFERRED, UNCLEAN])
def test_every_version_tells_that_no_election_is_needed(admin: AdminFixture, version: int, election: int) -> None:
    needless = ErrorCode.election_not_needed
    rows = [(0, needless), (1, needless), (2, ErrorCode.unknown_topic_or_partition)]
    assert elect(admin, version, election) == ("flights", rows)


@pytest.mark.parametrize("version", elect_leaders.VERSIONS)
def test_who_asks_for_all_is_told_of_none(admin: AdminFixture, version: int) -> None:
    response = admin.ask(elect_leaders, version, election_type=PREFERRED, topic_partitions=None)
    assert response.replica_election_results == ()


def test_unknown_topics_are_told(admin: AdminFixture) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert elect(admin, 2, PREFERRED, "other") == ("other", [(0, unknown), (1, unknown), (2, unknown)])


def test_an_unknown_election_is_refused(admin: AdminFixture) -> None:
    wanted = ({"topic": "flights", "partitions": (0,)},)
    response = admin.ask(elect_leaders, 2, election_type=7, topic_partitions=wanted)
    assert response.error_code is ErrorCode.invalid_request
    assert response.replica_election_results[0].partition_result[0].error_code is ErrorCode.invalid_request
