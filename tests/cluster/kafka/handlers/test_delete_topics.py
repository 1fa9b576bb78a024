"""DeleteTopics in every version, by name and by id."""

from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import create_topics, delete_topics
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic


def create(admin: AdminFixture, *names: str) -> list[UUID]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return [row.topic_id for row in admin.ask(create_topics, 7, topics=topics).topics]


@pytest.mark.parametrize("version", delete_topics.KEY.versions)
def test_every_version_deletes_by_name(admin: AdminFixture, version: int) -> None:
    (flights, _) = create(admin, "flights", "other")
    names = {"topic_names": ("flights",), "topics": [{"name": "flights"}]}
    (result,) = admin.ask(delete_topics, version, **names).responses
    assert (result.name, result.error_code) == ("flights", ErrorCode.none)
    assert list(admin.image.topics_by_name) == ["other"]
    if version >= 6:
        assert result.topic_id == flights


def test_a_topic_is_deleted_by_its_id(admin: AdminFixture) -> None:
    (flights,) = create(admin, "flights")
    (result,) = admin.ask(delete_topics, 6, topics=[{"topic_id": flights, "name": None}]).responses
    assert (result.name, result.topic_id, result.error_code) == ("flights", flights, ErrorCode.none)
    assert not admin.image.topics_by_id


def test_missing_topics_are_distinguished_by_name_and_id(admin: AdminFixture) -> None:
    unknown = UUID(int=99)
    response = admin.ask(delete_topics, 6, topics=[{"name": "none"}, {"name": None, "topic_id": unknown}])
    assert [(row.name, row.topic_id, row.error_code) for row in response.responses] == [
        ("none", None, ErrorCode.unknown_topic_or_partition),
        (None, unknown, ErrorCode.unknown_topic_id),
    ]


def test_what_is_named_twice_or_both_ways_or_not_at_all_is_refused(admin: AdminFixture) -> None:
    (a,) = create(admin, "a")
    topics = [{"name": "a"}, {"name": "a"}, {"name": "b", "topic_id": a}, {"name": None, "topic_id": None}]
    response = admin.ask(delete_topics, 6, topics=topics)
    assert [(row.name, row.error_code) for row in response.responses] == [
        ("a", ErrorCode.invalid_request),
        ("b", ErrorCode.invalid_request),
        (None, ErrorCode.invalid_request),
    ]
    assert list(admin.image.topics_by_name) == ["a"]


def test_internal_topics_stay(admin: AdminFixture) -> None:
    admin.propose(CreateTopic(UUID(int=5), "__consumer_offsets", ((BrokerId(1),),)))
    (result,) = admin.ask(delete_topics, 6, topics=[{"name": "__consumer_offsets"}]).responses
    assert result.error_code is ErrorCode.invalid_topic_exception
    assert "__consumer_offsets" in admin.image.topics_by_name


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)])
def test_deletion_may_be_switched_off(version: int, code: ErrorCode) -> None:
    admin = AdminFixture(delete_topic_enable=False)
    create(admin, "a")
    (result,) = admin.ask(delete_topics, version, topic_names=("a",)).responses
    assert result.error_code is code
    assert "a" in admin.image.topics_by_name
    admin.close()


def test_a_name_may_be_used_again_and_gets_another_id(admin: AdminFixture) -> None:
    (first,) = create(admin, "a")
    admin.ask(delete_topics, 6, topics=[{"name": "a"}])
    (second,) = create(admin, "a")
    assert first != second


def test_a_topic_that_is_named_by_its_name_and_by_its_id_stays(admin: AdminFixture) -> None:
    (a, _) = create(admin, "a", "b")
    topics = [{"name": "a"}, {"name": "b"}, {"name": None, "topic_id": a}]
    response = admin.ask(delete_topics, 6, topics=topics)
    assert [(row.name, row.topic_id, row.error_code) for row in response.responses][1:] == [
        (None, a, ErrorCode.invalid_request)
    ]
    assert list(admin.image.topics_by_name) == ["a"]
