"""Audit events of administrative requests: one for each resource, with its outcome, and no config's value."""

from typing import Any

import pytest
from admin_fixture import AdminFixture

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.audited import ACTS
from cordwood.cluster.kafka.handlers import (
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    metadata,
    unregister_broker,
)
from cordwood.cluster.kafka.registry import KAFKA_APIS

ACL = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


COUNTS = {"num_partitions": -1, "replication_factor": -1}


@pytest.fixture
def audited() -> AdminFixture:
    fixture = AdminFixture(brokers=2)
    fixture.ask(create_topics, 7, topics=[{"name": "orders", "num_partitions": 2, "replication_factor": 1}])
    return fixture


def acts(fixture: AdminFixture) -> list[tuple[str, str, str, str]]:
    return [(event.action, event.resource, event.outcome, event.detail) for event in fixture.acts]


def test_topics_are_created_extended_and_deleted(audited: AdminFixture) -> None:
    audited.ask(create_topics, 7, topics=[COUNTS | {"name": name} for name in ("orders", "other")], validate_only=True)
    audited.ask(create_partitions, 3, topics=[{"name": "orders", "count": 3, "assignments": None}])
    audited.ask(delete_topics, 6, topics=[{"name": "orders", "topic_id": None}, {"name": "missing", "topic_id": None}])
    assert acts(audited) == [
        ("CREATE_TOPICS", "TOPIC:orders", "NONE", ""),
        ("CREATE_TOPICS (validate only)", "TOPIC:orders", "TOPIC_ALREADY_EXISTS", ""),
        ("CREATE_TOPICS (validate only)", "TOPIC:other", "NONE", ""),
        ("CREATE_PARTITIONS", "TOPIC:orders", "NONE", ""),
        ("DELETE_TOPICS", "TOPIC:orders", "NONE", ""),
        ("DELETE_TOPICS", "TOPIC:missing", "UNKNOWN_TOPIC_OR_PARTITION", ""),
    ]


def test_configs_are_named_without_their_values(audited: AdminFixture) -> None:
    changes = [{"name": "retention.ms", "config_operation": 0, "value": "4711"}]
    resources = [{"resource_type": 2, "resource_name": "orders", "configs": changes}]
    audited.ask(incremental_alter_configs, 1, resources=resources)
    assert acts(audited)[1:] == [("INCREMENTAL_ALTER_CONFIGS", "TOPIC:orders", "NONE", "retention.ms")]


def test_acls_are_written_out(audited: AdminFixture) -> None:
    audited.ask(create_acls, 3, creations=[ACL])
    filters: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    audited.ask(delete_acls, 3, filters=[filters])
    detail = "ALLOW User:alice READ from *, LITERAL"
    assert acts(audited)[1:] == [
        ("CREATE_ACLS", "TOPIC:orders", "NONE", detail),
        ("DELETE_ACLS", "TOPIC:orders", "NONE", detail),
    ]


def test_brokers_and_elections(audited: AdminFixture) -> None:
    audited.ask(unregister_broker, 0, broker_id=7)
    partitions = [{"topic": "orders", "partitions": [0]}]
    audited.ask(elect_leaders, 2, election_type=0, topic_partitions=partitions, timeout_ms=1000)
    assert acts(audited)[1:] == [
        ("UNREGISTER_BROKER", "BROKER:7", "BROKER_ID_NOT_REGISTERED", ""),
        ("ELECT_LEADERS", "TOPIC:orders", "ELECTION_NOT_NEEDED", "partition 0"),
    ]


def test_a_read_is_no_act(audited: AdminFixture) -> None:
    before = len(audited.acts)
    audited.ask(metadata, 12, topics=None)
    assert len(audited.acts) == before


def test_every_api_that_changes_what_an_operator_sets_up_is_audited() -> None:
    changing = ("CREATE_", "DELETE_", "ALTER_", "INCREMENTAL_", "ELECT_", "UNREGISTER_", "RENEW_", "EXPIRE_")
    names = {key for key in KAFKA_APIS if key.name.startswith(changing)}
    # A request of another broker, as a consequence of an act that is audited.
    assert names - {ApiKey.DELETE_SHARE_GROUP_STATE} <= ACTS.keys()
