"""AlterClientQuotas and DescribeClientQuotas: Kafka's codes, filters, and an audit event for each entity."""

from typing import Any

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_client_quotas as alter
from cordwood.cluster.kafka.handlers import describe_client_quotas as describe
from cordwood.cluster.metadata import client_quotas
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas, QuotaAlteration
from cordwood.cluster.security.audit.event import SUCCEEDED

EXACT, DEFAULT, ANY = 0, 1, 2
RATE = "producer_byte_rate"
NONE = (ErrorCode.none, None)


def entry(entity: dict[str, str | None], limits: dict[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()],
    }


def altered(admin: AdminFixture, *entries: dict[str, Any], only: bool = False, version: int = 1) -> list[Any]:
    response = admin.ask(alter, version, entries=entries, validate_only=only)
    return [(row.error_code, row.error_message) for row in response.entries]


def asked(admin: AdminFixture, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    return admin.ask(describe, 1, components=rows, strict=strict)


def described(admin: AdminFixture, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    response = asked(admin, *components, strict=strict)
    assert response.error_code is ErrorCode.none
    return [
        ({part.entity_type: part.entity_name for part in row.entity}, {one.key: one.value for one in row.values})
        for row in response.entries
    ]


@pytest.mark.parametrize("version", alter.KEY.versions)
def test_quotas_are_set_changed_and_removed(admin: AdminFixture, version: int) -> None:
    both = entry({"user": "ann", "client-id": None}, {RATE: 1e6, "request_percentage": 12.5})
    assert altered(admin, both, entry({"user": None}, {RATE: 5e6}), version=version) == [NONE, NONE]
    altered(admin, entry({"client-id": None, "user": "ann"}, {RATE: 2e6}))
    assert described(admin) == [
        ({"client-id": None, "user": "ann"}, {RATE: 2e6, "request_percentage": 12.5}),
        ({"user": None}, {RATE: 5e6}),
    ]
    altered(admin, entry({"client-id": None, "user": "ann"}, {RATE: None}), entry({"user": None}, {RATE: None}))
    assert described(admin) == [({"client-id": None, "user": "ann"}, {"request_percentage": 12.5})]


def test_the_removal_of_what_is_not_set_succeeds(admin: AdminFixture) -> None:
    assert altered(admin, entry({"user": "ann"}, {RATE: None})) == [NONE]
    assert described(admin) == []


def test_invalid_entries_leave_the_others(admin: AdminFixture) -> None:
    outcomes = altered(
        admin,
        entry({"user": "ann"}, {RATE: 1e6}),
        entry({"user": "bob"}, {"bytes": 1.0}),
        entry({"group": "g"}, {RATE: 1.0}),
        entry({"user": "ann"}, {RATE: 2.0}),
        entry({"user": "eve"}, {RATE: 0.0}),
        {"entity": [{"entity_type": "user", "entity_name": "kim"}], "ops": [
            {"key": RATE, "value": 1.0, "remove": False}, {"key": RATE, "value": 2.0, "remove": False},
        ]},
    )  # fmt: skip
    assert [code for code, _ in outcomes] == [ErrorCode.none] + 5 * [ErrorCode.invalid_request]
    assert outcomes[1][1] == "Invalid configuration key bytes"
    assert described(admin) == [({"user": "ann"}, {RATE: 1e6})]


def test_a_validation_changes_nothing(admin: AdminFixture) -> None:
    good, bad = entry({"user": "ann"}, {RATE: 1.0}), entry({"user": "ann"}, {RATE: -1.0})
    assert altered(admin, good, only=True) == [NONE]
    assert altered(admin, bad, only=True)[0][0] is ErrorCode.invalid_request
    assert described(admin) == []


QUOTAS: tuple[dict[str, str | None], ...] = (
    {"user": "ann"},
    {"user": None},
    {"user": "ann", "client-id": "app"},
    {"user": "ann", "client-id": None},
    {"client-id": "app"},
    {"ip": "10.0.0.1"},
    {"ip": None},
)


@pytest.mark.parametrize(
    ("components", "is_strict", "found"),
    [
        ([], False, [0, 1, 2, 3, 4, 5, 6]),
        ([], True, []),
        ([("user", EXACT, "ann")], False, [0, 2, 3]),
        ([("user", EXACT, "ann")], True, [0]),
        ([("user", DEFAULT, None)], False, [1]),
        ([("user", ANY, None)], True, [0, 1]),
        ([("user", EXACT, "ann"), ("client-id", DEFAULT, None)], True, [3]),
        ([("user", EXACT, "ann"), ("client-id", ANY, None)], True, [2, 3]),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, [2]),
        ([("client-id", DEFAULT, None)], False, [3]),
        ([("user", ANY, None), ("client-id", ANY, None)], False, [2, 3]),
        ([("client-id", EXACT, "app")], False, [2, 4]),
        ([("ip", ANY, None)], True, [5, 6]),
    ],
)
def test_filters(admin: AdminFixture, components: Any, is_strict: bool, found: list[int]) -> None:
    for entity in QUOTAS:
        altered(admin, entry(entity, {"connection_creation_rate" if "ip" in entity else RATE: 5.0}))
    shown = [entity for entity, _ in described(admin, *components, strict=is_strict)]
    assert shown == [QUOTAS[at] for at in found]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "x")], ErrorCode.invalid_request),
        ([("user", EXACT, None)], ErrorCode.invalid_request),
        ([("user", DEFAULT, "x")], ErrorCode.invalid_request),
        ([("user", 3, None)], ErrorCode.invalid_request),
        ([("user", ANY, None), ("user", DEFAULT, None)], ErrorCode.invalid_request),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.invalid_request),
        ([("group", ANY, None)], ErrorCode.unsupported_version),
    ],
)
def test_filters_that_kafka_refuses(admin: AdminFixture, components: Any, code: ErrorCode) -> None:
    response = asked(admin, *components)
    assert (response.error_code, response.entries) == (code, None)


def test_each_entity_is_in_the_audit_log(admin: AdminFixture) -> None:
    altered(
        admin,
        entry({"user": "ann", "client-id": None}, {RATE: 1e6, "request_percentage": None}),
        entry({"user": "bob"}, {RATE: -1.0}),
    )
    assert [(act.action, act.resource, act.outcome, act.detail) for act in admin.acts] == [
        (
            "ALTER_CLIENT_QUOTAS",
            "QUOTA:user=ann, client-id=(default)",
            SUCCEEDED,
            f"{RATE}=1e+06, request_percentage=removed",
        ),
        ("ALTER_CLIENT_QUOTAS", "QUOTA:user=bob", "INVALID_REQUEST", f"{RATE}=-1"),
    ]


def test_the_number_of_entities_is_limited(admin: AdminFixture) -> None:
    changes = (QuotaAlteration((("user", f"u{at}"),), RATE, 1.0) for at in range(client_quotas.ENTITIES_MAX))
    admin.propose(AlterClientQuotas(tuple(changes)))
    assert altered(admin, entry({"user": "one more"}, {RATE: 1.0}))[0][0] is ErrorCode.policy_violation
    assert altered(admin, entry({"user": "u1"}, {RATE: 2.0})) == [NONE]


def test_twice_the_same_change_is_the_change_once(admin: AdminFixture) -> None:
    command = AlterClientQuotas((QuotaAlteration((("user", "ann"),), RATE, 1.0),))
    first = admin.propose(command).client_quotas
    assert admin.propose(command).client_quotas == first
