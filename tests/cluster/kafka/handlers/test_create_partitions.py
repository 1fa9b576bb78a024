"""CreatePartitions in every version."""

from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import create_partitions
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    admin.propose(CreateTopic(UUID(int=1), "flights", ((ONE,), (ONE,))))
    return admin


def count(admin: AdminFixture) -> int:
    return len(admin.image.topics_by_name["flights"].partitions)


def more(to: int, name: str = "flights", assignments: list[tuple[int, ...]] | None = None) -> dict[str, Any]:
    rows = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    return {"name": name, "count": to, "assignments": rows}


def code(admin: AdminFixture, wanted: dict[str, Any], version: int = 3) -> ErrorCode:
    (result,) = admin.ask(create_partitions, version, topics=[wanted]).results
    assert (result.error_message is None) == (result.error_code is ErrorCode.none)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", create_partitions.KEY.versions)
def test_every_version_adds_partitions(admin: AdminFixture, version: int) -> None:
    assert code(admin, more(5), version) is ErrorCode.none
    assert count(admin) == 5


def test_validation_alone_adds_none(admin: AdminFixture) -> None:
    (result,) = admin.ask(create_partitions, 3, topics=[more(5)], validate_only=True).results
    assert result.error_code is ErrorCode.none
    assert count(admin) == 2


def test_the_partitions_of_all_topics_of_a_request_are_counted_together(admin: AdminFixture) -> None:
    admin.propose(CreateTopic(UUID(int=2), "other", ((ONE,),)))
    asked = [more(6_000), more(6_000, "other")]
    results = admin.ask(create_partitions, 3, topics=asked, validate_only=True).results
    assert [result.error_code for result in results] == [ErrorCode.policy_violation] * 2
    assert all(code(admin, wanted) is ErrorCode.none for wanted in asked)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (more(2), ErrorCode.invalid_partitions),
        (more(1), ErrorCode.invalid_partitions),
        (more(-1), ErrorCode.invalid_partitions),
        (more(3, "other"), ErrorCode.unknown_topic_or_partition),
        (more(3, "__consumer_offsets"), ErrorCode.invalid_topic_exception),
        (more(20_000), ErrorCode.policy_violation),
        (more(3, assignments=[]), ErrorCode.invalid_replica_assignment),
        (more(3, assignments=[(1,), (1,)]), ErrorCode.invalid_replica_assignment),
        (more(3, assignments=[(9,)]), ErrorCode.invalid_replica_assignment),
        (more(3, assignments=[()]), ErrorCode.invalid_replica_assignment),
    ],
)
def test_what_cannot_be_is_said_by_its_code(admin: AdminFixture, wanted: dict[str, Any], expected: ErrorCode) -> None:
    assert code(admin, wanted) is expected
    assert count(admin) == 2


def test_new_partitions_have_as_many_replicas_as_the_old() -> None:
    admin = AdminFixture(brokers=3)
    admin.propose(CreateTopic(UUID(int=1), "flights", ((ONE, TWO),)))
    assert code(admin, more(4)) is ErrorCode.none
    assert code(admin, more(5, assignments=[(3, 1)])) is ErrorCode.none
    assert code(admin, more(6, assignments=[(3,)])) is ErrorCode.invalid_replica_assignment
    partitions = admin.image.topics_by_name["flights"].partitions
    assert [len(set(partition.replicas)) for partition in partitions] == [2] * 5
    assert partitions[4].replicas == (THREE, ONE)
    admin.close()


def test_a_name_that_comes_twice_is_refused(admin: AdminFixture) -> None:
    (result,) = admin.ask(create_partitions, 3, topics=[more(3), more(4)]).results
    assert result.error_code is ErrorCode.invalid_request
    assert count(admin) == 2
