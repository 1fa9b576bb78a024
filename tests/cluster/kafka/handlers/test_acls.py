"""CreateAcls, DescribeAcls and DeleteAcls in every version: a created ACL is found, and gone after its deletion."""

from typing import Any

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import create_acls, delete_acls, describe_acls

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER = 2, 4
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3


def acl(name: str = "flights", principal: str = "User:alice", **changes: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": principal,
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **changes,
    }


def filter_for(**changes: Any) -> dict[str, Any]:
    everything = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    return {**everything, **changes}


def create(admin: AdminFixture, *acls: dict[str, Any], version: int = 3) -> list[ErrorCode]:
    response = admin.ask(create_acls, version, creations=acls)
    return [result.error_code for result in response.results]


def described(admin: AdminFixture, version: int = 3, **wanted: Any) -> list[tuple[Any, ...]]:
    response = admin.ask(describe_acls, version, **filter_for(**wanted))
    assert response.error_code is ErrorCode.none
    return [
        (on.resource_name, on.pattern_type, row.principal, row.operation)
        for on in response.resources
        for row in on.acls
    ]


def delete(admin: AdminFixture, *filters: dict[str, Any], version: int = 3) -> list[list[tuple[str, str]]]:
    response = admin.ask(delete_acls, version, filters=filters)
    assert {result.error_code for result in response.filter_results} == {ErrorCode.none}
    return [[(row.resource_name, row.principal) for row in result.matching_acls] for result in response.filter_results]


@pytest.mark.parametrize("version", create_acls.KEY.versions)
def test_every_version_creates_describes_and_deletes(admin: AdminFixture, version: int) -> None:
    codes = create(admin, acl(), acl("fl", resource_pattern_type=PREFIXED), version=version)
    assert codes == [ErrorCode.none, ErrorCode.none]
    both = [("fl", PREFIXED, "User:alice", READ), ("flights", LITERAL, "User:alice", READ)]
    assert described(admin, version) == both
    assert described(admin, version, resource_name_filter="flights", pattern_type_filter=MATCH) == both
    only = filter_for(resource_name_filter="fl", pattern_type_filter=PREFIXED)
    assert delete(admin, only, version=version) == [[("fl", "User:alice")]]
    assert described(admin, version) == both[1:]


def test_acls_on_one_pattern_are_listed_together(admin: AdminFixture) -> None:
    create(admin, acl(principal="User:b"), acl("other"), acl(principal="User:a"), acl(operation=WRITE))
    response = admin.ask(describe_acls, 3, **filter_for(resource_name_filter="flights"))
    (on,) = response.resources
    assert [(row.principal, row.operation) for row in on.acls] == [
        ("User:a", READ),
        ("User:alice", WRITE),
        ("User:b", READ),
    ]


def test_what_exists_is_created_in_name_only(admin: AdminFixture) -> None:
    assert create(admin, acl(), acl()) == [ErrorCode.none, ErrorCode.none]
    index = admin.image.index
    assert create(admin, acl()) == [ErrorCode.none]
    assert (len(admin.image.acls), admin.image.index) == (1, index)


def test_what_several_filters_find_is_listed_under_each(admin: AdminFixture) -> None:
    create(admin, acl(), acl("other"))
    by_name, by_principal = filter_for(resource_name_filter="other"), filter_for(principal_filter="User:alice")
    found = delete(admin, by_name, by_principal, filter_for(host_filter="10.0.0.1"))
    alice = "User:alice"
    assert found == [[("other", alice)], [("flights", alice), ("other", alice)], []]
    assert described(admin) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": ANY},
        {"resource_type": 0},
        {"resource_type": 99},
        {"resource_type": CLUSTER},
        {"resource_name": ""},
        {"host": ""},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"operation": 0},
        {"permission_type": ANY},
        {"permission_type": 9},
        {"principal": "alice"},
    ],
)
def test_what_is_no_acl_is_refused_and_the_rest_created(admin: AdminFixture, changes: dict[str, Any]) -> None:
    response = admin.ask(create_acls, 3, creations=(acl(**changes), acl("other")))
    wrong, right = response.results
    assert (wrong.error_code, right.error_code) == (ErrorCode.invalid_request, ErrorCode.none)
    assert wrong.error_message
    assert [name for name, *_ in described(admin)] == ["other"]


def test_the_cluster_has_one_name(admin: AdminFixture) -> None:
    assert create(admin, acl("kafka-cluster", resource_type=CLUSTER)) == [ErrorCode.none]


@pytest.mark.parametrize("unknown", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_with_an_unknown_element_is_refused(admin: AdminFixture, unknown: str) -> None:
    create(admin, acl())
    wanted = filter_for(**{unknown: 0})
    assert admin.ask(describe_acls, 3, **wanted).error_code is ErrorCode.invalid_request
    refused, other = admin.ask(delete_acls, 3, filters=(wanted, filter_for(principal_filter="x"))).filter_results
    assert (refused.error_code, other.error_code) == (ErrorCode.invalid_request, ErrorCode.none)
    assert len(described(admin)) == 1
