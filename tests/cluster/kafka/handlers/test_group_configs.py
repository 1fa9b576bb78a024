"""Configs of groups by their messages: set, described, listed, refused; effective values for the group coordinators."""

from collections.abc import Iterator
from typing import Any

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.group_configs import GroupConfigs
from cordwood.cluster.config.rows import Source
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)

GROUP, BROKER = 32, 4
SESSION, LOCK, RESET = "share.session.timeout.ms", "share.record.lock.duration.ms", "share.auto.offset.reset"
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    fixture = AdminFixture()
    yield fixture
    fixture.close()


def alter(
    admin: AdminFixture,
    group: str,
    configs: dict[str, str | None],
    operation: int = SET,
    *,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    rows = [
        {"name": key, "value": value, "config_operation": DELETE if value is None else operation}
        for key, value in configs.items()
    ]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": rows}
    answer = admin.ask(incremental_alter_configs, 1, resources=[resource], validate_only=validate_only)
    return answer.responses[0].error_code, answer.responses[0].error_message


def described(admin: AdminFixture, group: str, *keys: str) -> Any:
    asked = {"resource_type": GROUP, "resource_name": group, "configuration_keys": keys or None}
    answer = admin.ask(describe_configs, 4, resources=[asked], include_synonyms=True, include_documentation=True)
    return answer.results[0]


def values(admin: AdminFixture, group: str) -> dict[str, tuple[str, int]]:
    return {row.name: (row.value, row.config_source) for row in described(admin, group).configs}


def groups(admin: AdminFixture) -> list[str]:
    listed = admin.ask(list_config_resources, 1, resource_types=(GROUP,))
    return [row.resource_name for row in listed.config_resources]


def test_a_config_is_set_described_listed_and_removed(admin: AdminFixture) -> None:
    assert alter(admin, "workers", {LOCK: "15000", RESET: "earliest"})[0] is ErrorCode.none
    assert groups(admin) == ["workers"]
    found = values(admin, "workers")
    assert found[LOCK] == ("15000", Source.DYNAMIC_GROUP)
    assert found[RESET] == ("earliest", Source.DYNAMIC_GROUP)
    assert found[SESSION] == ("45000", Source.DEFAULT)
    (lock,) = described(admin, "workers", LOCK).configs
    assert [(one.name, one.value) for one in lock.synonyms] == [
        (LOCK, "15000"),
        ("group.share.record.lock.duration.ms", "30000"),
    ]
    assert alter(admin, "workers", {LOCK: None, RESET: None})[0] is ErrorCode.none
    assert (groups(admin), admin.image.group_configs) == ([], {})


def test_a_group_without_configs_has_the_defaults_of_kafka(admin: AdminFixture) -> None:
    assert {key: value for key, (value, _) in values(admin, "any").items()} == {
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
        "errors.deadletterqueue.copy.record.enable": "false",
        "errors.deadletterqueue.topic.name": "",
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": "5",
        "share.heartbeat.interval.ms": "5000",
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": "2000",
        "share.record.lock.duration.ms": "30000",
        "share.renew.acknowledge.enable": "true",
        "share.session.timeout.ms": "45000",
    }


def test_alter_configs_replaces_all_configs(admin: AdminFixture) -> None:
    alter(admin, "workers", {LOCK: "15000"})
    resource = {"resource_type": GROUP, "resource_name": "workers", "configs": [{"name": RESET, "value": "earliest"}]}
    answer = admin.ask(alter_configs, 2, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code is ErrorCode.none
    assert admin.image.group_configs == {"workers": {RESET: "earliest"}}


def test_validate_only_changes_nothing(admin: AdminFixture) -> None:
    assert alter(admin, "workers", {LOCK: "15000"}, validate_only=True)[0] is ErrorCode.none
    assert admin.image.group_configs == {}


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({"retention.ms": "1"}, "Unknown group config name: retention.ms"),
        ({LOCK: "14999"}, f"{LOCK} must be greater than or equal to group.share.min.record.lock.duration.ms (15000)"),
        ({LOCK: "60001"}, f"{LOCK} must be less than or equal to group.share.max.record.lock.duration.ms (60000)"),
        ({LOCK: "soon"}, f"Invalid value soon for configuration {LOCK}: it must be a whole number of at least 1000."),
        ({"share.delivery.count.limit": "11"}, "group.share.max.delivery.count.limit (10)"),
        ({"share.partition.max.record.locks": "99"}, "group.share.min.partition.max.record.locks (100)"),
        ({"consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms (45000)"),
        ({"consumer.heartbeat.interval.ms": "15001"}, "group.consumer.max.heartbeat.interval.ms (15000)"),
        ({RESET: "yesterday"}, "it must be earliest, latest or by_duration:PnDTnHnMn.nS"),
        ({RESET: "by_duration:-PT1S"}, "it must be earliest, latest or by_duration:PnDTnHnMn.nS"),
        ({"share.isolation.level": "serializable"}, "one of read_committed, read_uncommitted"),
    ],
)
def test_an_invalid_value_is_refused(admin: AdminFixture, configs: dict[str, str | None], sentence: str) -> None:
    code, message = alter(admin, "workers", configs)
    assert code is ErrorCode.invalid_config
    assert message is not None
    assert sentence in message
    assert admin.image.group_configs == {}


def test_a_session_must_be_longer_than_a_heartbeat() -> None:
    admin = AdminFixture(group_share_min_session_timeout_ms=5_000)
    code, message = alter(admin, "workers", {SESSION: "5000"})
    assert code is ErrorCode.invalid_config
    assert message == f"{SESSION} must be greater than share.heartbeat.interval.ms"
    assert alter(admin, "workers", {SESSION: "5001"})[0] is ErrorCode.none
    assert alter(admin, "workers", {"share.heartbeat.interval.ms": "5001"})[0] is ErrorCode.invalid_config
    admin.close()


def test_a_group_needs_a_name(admin: AdminFixture) -> None:
    assert alter(admin, "", {LOCK: "15000"}) == (ErrorCode.invalid_request, "Default group resources are not allowed.")
    assert described(admin, "").error_code is ErrorCode.invalid_request


def test_no_group_config_is_a_list(admin: AdminFixture) -> None:
    assert alter(admin, "workers", {RESET: "earliest"}, APPEND)[0] is ErrorCode.invalid_config


def test_group_configs_wait_for_their_level() -> None:
    admin = AdminFixture(level=2)
    code, _ = alter(admin, "workers", {LOCK: "15000"})
    assert code is ErrorCode.unsupported_version
    assert admin.image.group_configs == {}
    admin.close()


def test_effective_values_follow_the_metadata(admin: AdminFixture) -> None:
    config = admin.services.group_configs
    assert config("workers").share.record_lock_ms == 30_000
    alter(admin, "workers", {LOCK: "20000", "share.isolation.level": "read_committed"})
    assert config("workers").share.record_lock_ms == 20_000
    assert config("workers").share.is_read_committed
    assert config("others").share.record_lock_ms == 30_000
    alter(admin, "workers", {LOCK: None})
    assert config("workers").share.record_lock_ms == 30_000


def test_bounds_that_were_narrowed_limit_what_is_set() -> None:
    wide = AdminFixture(group_share_max_record_lock_duration_ms=3_600_000)
    alter(wide, "workers", {LOCK: "3600000"})
    assert wide.services.group_configs("workers").share.record_lock_ms == 3_600_000
    narrow = GroupConfigs(Settings(), lambda: wide.image)
    assert narrow("workers").share.record_lock_ms == 60_000
    wide.close()
