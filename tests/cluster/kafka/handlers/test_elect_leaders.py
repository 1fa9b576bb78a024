"""ElectLeaders in every version: preferred and unclean elections, and Kafka's error codes for those that fail."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import elect_leaders
from cordwood.cluster.kafka.handlers.elect_leaders import AT_ONCE_MAX
from cordwood.cluster.metadata.commands import AlterPartitions, BrokerId, CreateTopic, IsrChange

PREFERRED, UNCLEAN = 0, 1
ONE, TWO = BrokerId(1), BrokerId(2)
FLIGHTS = UUID(int=1)
NEEDLESS, UNKNOWN = ErrorCode.election_not_needed, ErrorCode.unknown_topic_or_partition


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """Yield two partitions on two brokers, both led by the first."""
    fixture = AdminFixture(brokers=2)
    fixture.propose(CreateTopic(FLIGHTS, "flights", ((ONE, TWO),) * 2))
    yield fixture
    fixture.close()


def elect(
    admin: AdminFixture, version: int, election: int, topic: str = "flights", partitions: tuple[int, ...] = (0, 1, 2)
) -> tuple[str, list[tuple[int, ErrorCode]]]:
    wanted = ({"topic": topic, "partitions": partitions},)
    response = admin.ask(elect_leaders, version, election_type=election, topic_partitions=wanted)
    (result,) = response.replica_election_results
    for row in result.partition_result:
        assert (row.error_message is None) == (row.error_code is ErrorCode.none)
    return result.topic, [(row.partition_id, row.error_code) for row in result.partition_result]


def led_by_the_other(admin: AdminFixture, *, in_sync: bool) -> None:
    """Make the second broker leader of both partitions; with `in_sync` the first is in the ISR of partition 0 again."""
    admin.fence(1)
    admin.unfence(1)
    if in_sync:
        partition = admin.image.topics_by_id[FLIGHTS].partitions[0]
        epochs = admin.image.brokers[ONE].epoch, admin.image.brokers[TWO].epoch
        members = ((ONE, epochs[0]), (TWO, epochs[1]))
        change = IsrChange(FLIGHTS, 0, partition.leader_epoch, partition.partition_epoch, members)
        admin.propose(AlterPartitions(TWO, epochs[1], (change,)))


def leaders(admin: AdminFixture) -> list[int]:
    return [partition.leader for partition in admin.image.topics_by_id[FLIGHTS].partitions]


@pytest.mark.parametrize("version", elect_leaders.KEY.versions)
@pytest.mark.parametrize("election", [PREFERRED, UNCLEAN])
def test_every_version_reports_that_no_election_is_needed(admin: AdminFixture, version: int, election: int) -> None:
    if version == 0 and election == UNCLEAN:
        return
    assert elect(admin, version, election) == ("flights", [(0, NEEDLESS), (1, NEEDLESS), (2, UNKNOWN)])


@pytest.mark.parametrize("version", elect_leaders.KEY.versions)
def test_the_preferred_replica_leads_where_it_is_in_sync(admin: AdminFixture, version: int) -> None:
    led_by_the_other(admin, in_sync=True)
    rows = [(0, ErrorCode.none), (1, ErrorCode.preferred_leader_not_available), (2, UNKNOWN)]
    assert elect(admin, version, PREFERRED) == ("flights", rows)
    assert leaders(admin) == [1, 2]


def test_a_replica_that_may_lack_records_leads_where_there_is_no_leader(admin: AdminFixture) -> None:
    led_by_the_other(admin, in_sync=False)
    assert elect(admin, 2, UNCLEAN, partitions=(0,)) == ("flights", [(0, NEEDLESS)])
    admin.fence(2)
    assert leaders(admin) == [-1, -1]
    assert elect(admin, 2, UNCLEAN, partitions=(0,)) == ("flights", [(0, ErrorCode.none)])
    assert leaders(admin) == [1, -1]


def test_no_leader_is_elected_where_no_replica_is_alive(admin: AdminFixture) -> None:
    admin.fence(2)
    admin.fence(1)
    assert elect(admin, 2, UNCLEAN, partitions=(0,)) == ("flights", [(0, ErrorCode.eligible_leaders_not_available)])


@pytest.mark.parametrize("version", elect_leaders.KEY.versions)
def test_a_request_for_all_lists_those_that_needed_an_election(admin: AdminFixture, version: int) -> None:
    response = admin.ask(elect_leaders, version, election_type=PREFERRED, topic_partitions=None)
    assert response.replica_election_results == ()
    led_by_the_other(admin, in_sync=True)
    response = admin.ask(elect_leaders, version, election_type=PREFERRED, topic_partitions=None)
    (result,) = response.replica_election_results
    rows = [(row.partition_id, row.error_code) for row in result.partition_result]
    assert rows == [(0, ErrorCode.none), (1, ErrorCode.preferred_leader_not_available)]


def test_more_partitions_than_fit_in_one_command_are_elected(admin: AdminFixture) -> None:
    admin.propose(CreateTopic(UUID(int=2), "large", ((ONE, TWO),) * (AT_ONCE_MAX + 1)))
    led_by_the_other(admin, in_sync=False)
    admin.fence(2)
    response = admin.ask(elect_leaders, 2, election_type=UNCLEAN, topic_partitions=None)
    assert response.error_code is ErrorCode.none
    codes = [row.error_code for result in response.replica_election_results for row in result.partition_result]
    assert codes == [ErrorCode.none] * (AT_ONCE_MAX + 3)
    assert {partition.leader for topic in admin.image.topics_by_name.values() for partition in topic.partitions} == {1}


def test_unknown_topics_are_reported(admin: AdminFixture) -> None:
    assert elect(admin, 2, PREFERRED, "other") == ("other", [(0, UNKNOWN), (1, UNKNOWN), (2, UNKNOWN)])


def test_an_unknown_election_is_refused(admin: AdminFixture) -> None:
    wanted = ({"topic": "flights", "partitions": (0,)},)
    response = admin.ask(elect_leaders, 2, election_type=7, topic_partitions=wanted)
    assert response.error_code is ErrorCode.invalid_request
    assert response.replica_election_results[0].partition_result[0].error_code is ErrorCode.invalid_request
