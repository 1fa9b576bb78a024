"""Handlers with an undecided proposal: the error code is retriable, and never says that nothing was changed."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode
from quorum_in_memory import MetadataLog

from cordwood.cluster.kafka.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
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
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.commands import BrokerId, CreateAcls, CreateTopic


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    """Yield the first of two brokers, with a topic and an ACL. Its quorum has no leader."""
    fixture = AdminFixture(brokers=2)
    fixture.fence(2)
    fixture.propose(CreateTopic(UUID(int=1), "known", ((BrokerId(2), BrokerId(1)),)))
    on = ResourcePattern(AclResource.TOPIC, "known", Pattern.LITERAL)
    acl = Acl(on, "User:alice", "*", AclOperation.READ, Permission.ALLOW)
    fixture.propose(CreateAcls(((UUID(int=2), acl),)))
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


def acl(**changes: Any) -> dict[str, Any]:
    usual = {"resource_type": 2, "resource_name": "a", "resource_pattern_type": 3, "principal": "User:bob"}
    return {**usual, "host": "*", "operation": 3, "permission_type": 3, **changes}


def matching(**wanted: Any) -> dict[str, Any]:
    return {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1, **wanted}


def password(user: str, iterations: int = 4096) -> dict[str, Any]:
    return {"name": user, "mechanism": 1, "iterations": iterations, "salt": b"s", "salted_password": b"p"}


def quota(user: str, rate: float) -> dict[str, Any]:
    limit = {"key": "producer_byte_rate", "value": rate, "remove": False}
    return {"entity": [{"entity_type": "user", "entity_name": user}], "ops": [limit]}


def configured(name: str) -> dict[str, Any]:
    row = {"name": "flush.policy", "config_operation": 0, "value": "os"}
    return {"resource_type": 2, "resource_name": name, "configs": [row]}


def moved(index: int) -> dict[str, Any]:
    return {"partition_index": index, "replicas": (1,)}


REQUESTS: dict[ModuleType, dict[str, Any]] = {
    create_acls: {"creations": [acl(), acl(principal="bob")]},
    delete_acls: {"filters": [matching(), matching(principal_filter="User:bob")]},
    alter_user_scram_credentials: {"deletions": [], "upsertions": [password("ann"), password("bob", 1)]},
    alter_client_quotas: {"entries": [quota("ann", 1.0), quota("bob", 0.0)]},
    create_topics: {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]},
    create_partitions: {"topics": [{"name": "known", "count": 2, "assignments": [{"broker_ids": (1, 2)}]}]},
    delete_topics: {"topics": [{"name": "known"}, {"name": "none"}]},
    alter_configs: {"resources": [configured("known"), configured("none")]},
    incremental_alter_configs: {"resources": [configured("known"), configured("none")]},
    alter_partition_reassignments: {"topics": [{"name": "known", "partitions": [moved(0), moved(9)]}]},
    elect_leaders: {"election_type": 0, "topic_partitions": [{"topic": "known", "partitions": (0,)}]},
    unregister_broker: {"broker_id": 2},
}
"""Requests of which the first item is a change that a leader would make, and another one is refused at once."""


def codes_in(message: Any) -> list[ErrorCode]:
    """Return the error codes of a message, those of its items first."""
    if isinstance(message, tuple):
        return [code for item in message for code in codes_in(item)]
    fields = [(name, getattr(message, name)) for name in getattr(message, "__dataclass_fields__", {})]
    inner = [code for _, value in fields for code in codes_in(value)]
    return [*inner, *(value for name, value in fields if name == "error_code")]


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: api.KEY.name)
def test_no_change_is_confirmed_that_may_not_have_been_made(admin: AdminFixture, api: ModuleType) -> None:
    answer = admin.ask(api, api.KEY.versions[-1], **REQUESTS[api])
    assert codes_in(answer)[0] is ErrorCode.request_timed_out


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (create_acls, ErrorCode.invalid_request),
        (alter_user_scram_credentials, ErrorCode.unacceptable_credential),
        (alter_client_quotas, ErrorCode.invalid_request),
        (delete_topics, ErrorCode.unknown_topic_or_partition),
        (incremental_alter_configs, ErrorCode.unknown_topic_or_partition),
        (alter_partition_reassignments, ErrorCode.unknown_topic_or_partition),
    ],
    ids=lambda value: value.KEY.name if isinstance(value, ModuleType) else value.name,
)
def test_what_is_refused_at_once_keeps_its_code(admin: AdminFixture, api: ModuleType, code: ErrorCode) -> None:
    assert codes_in(admin.ask(api, api.KEY.versions[-1], **REQUESTS[api]))[1] is code
