"""Client metrics subscriptions, GetTelemetrySubscriptions and PushTelemetry by their messages (KIP-714)."""

from typing import Any
from uuid import UUID

import cramjam
import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from cordwood.cluster.kafka.handlers import (
    describe_configs,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    list_config_resources,
    push_telemetry,
)

CLIENT_METRICS = 16
INSTANCE = UUID(int=7, version=4)


@pytest.fixture
def admin() -> AdminFixture:
    return AdminFixture()


def alter(admin: AdminFixture, name: str, **configs: str | None) -> ErrorCode:
    rows = [
        {"name": key.replace("_", "."), "value": value, "config_operation": 1 if value is None else 0}
        for key, value in configs.items()
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": rows}
    answer = admin.ask(incremental_alter_configs, 1, resources=[resource], validate_only=False)
    code: ErrorCode = answer.responses[0].error_code
    return code


def subscribed(admin: AdminFixture, instance_id: UUID | None = INSTANCE) -> Any:
    return admin.ask(get_telemetry_subscriptions, 0, client_instance_id=instance_id)


def pushed(admin: AdminFixture, subscription_id: int, metrics: bytes, compression: int = 0) -> ErrorCode:
    answer = admin.ask(
        push_telemetry,
        0,
        client_instance_id=INSTANCE,
        subscription_id=subscription_id,
        terminating=False,
        compression_type=compression,
        metrics=metrics,
    )
    code: ErrorCode = answer.error_code
    return code


def metrics_of(**values: float) -> bytes:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, value in values.items():
        metric = scope.metrics.add(name=name.replace("_", "."))
        metric.sum.aggregation_temporality = 1
        metric.sum.data_points.add(as_double=value)
    return bytes(data.SerializeToString())


def test_a_subscription_is_set_listed_described_and_removed(admin: AdminFixture) -> None:
    assert alter(admin, "java", metrics="org.apache.kafka.", interval_ms="1000") is ErrorCode.none
    listed = admin.ask(list_config_resources, 0)
    assert [row.resource_name for row in listed.config_resources] == ["java"]
    asked = {"resource_type": CLIENT_METRICS, "resource_name": "java", "configuration_keys": None}
    described = admin.ask(describe_configs, 4, resources=[asked], include_synonyms=False, include_documentation=False)
    found = {row.name: (row.value, row.config_source) for row in described.results[0].configs}
    assert found == {"interval.ms": ("1000", 7), "match": ("", 5), "metrics": ("org.apache.kafka.", 7)}
    assert alter(admin, "java", metrics=None, interval_ms=None) is ErrorCode.none
    assert admin.image.client_metrics == {}


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("java", {"interval_ms": "99"}, ErrorCode.invalid_config),
        ("java", {"match": "client_id"}, ErrorCode.invalid_config),
        ("java", {"match": "host=.*"}, ErrorCode.invalid_config),
        ("java", {"match": "client_id=("}, ErrorCode.invalid_config),
        ("java", {"retention_ms": "1"}, ErrorCode.invalid_config),
        ("", {"metrics": "a"}, ErrorCode.invalid_request),
        ("a b", {"metrics": "a"}, ErrorCode.invalid_request),
    ],
)
def test_an_invalid_subscription_is_refused(
    admin: AdminFixture, name: str, configs: dict[str, str], code: ErrorCode
) -> None:
    assert alter(admin, name, **configs) is code


def test_a_client_without_an_instance_id_gets_one(admin: AdminFixture) -> None:
    answer = subscribed(admin, None)
    assert (answer.error_code, answer.client_instance_id.version) == (ErrorCode.none, 4)
    assert answer.requested_metrics == ()


def test_pushed_metrics_are_shown(admin: AdminFixture) -> None:
    alter(admin, "java", metrics="org.", interval_ms="1000")
    wanted = subscribed(admin)
    assert wanted.requested_metrics == ("org.",)
    packed = bytes(cramjam.zstd.compress(metrics_of(org_sent=5, other=1)))
    assert pushed(admin, wanted.subscription_id, packed, compression=4) is ErrorCode.none
    admin.now_s = 1
    assert pushed(admin, wanted.subscription_id, metrics_of(org_sent=2)) is ErrorCode.none
    rows = admin.services.telemetry.rows()
    assert [(labels[0], labels[3], value) for labels, value in rows] == [("org.sent", str(INSTANCE), 7)]


def test_bytes_that_are_no_metrics_are_refused(admin: AdminFixture) -> None:
    alter(admin, "java", metrics="*", interval_ms="1000")
    wanted = subscribed(admin).subscription_id
    assert pushed(admin, wanted, b"\xff\xff\xff") is ErrorCode.invalid_record
    admin.now_s = 1
    assert pushed(admin, wanted, b"no zstd", compression=4) is ErrorCode.invalid_record
    admin.now_s = 2
    bomb = bytes(cramjam.gzip.compress(bytes(2 << 20)))
    assert pushed(admin, wanted, bomb, compression=1) is ErrorCode.telemetry_too_large


def test_a_push_without_an_instance_id_is_invalid(admin: AdminFixture) -> None:
    answer = admin.ask(
        push_telemetry,
        0,
        client_instance_id=None,
        subscription_id=1,
        terminating=False,
        compression_type=0,
        metrics=b"",
    )
    assert answer.error_code is ErrorCode.invalid_request
