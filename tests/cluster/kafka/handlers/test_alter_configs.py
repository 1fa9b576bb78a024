"""AlterConfigs and IncrementalAlterConfigs in every version, for topics and for brokers."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import alter_configs, incremental_alter_configs
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),), (("retention.ms", "5000"),)))
    return admin


def configs(admin: AdminFixture) -> Mapping[str, str]:
    return admin.image.topics_by_name["flights"].configs


def resource(kind: int, name: str, *rows: tuple[Any, ...]) -> dict[str, Any]:
    fields = ("name", "config_operation", "value")
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [dict(zip(fields if len(row) == 3 else ("name", "value"), row, strict=True)) for row in rows],
    }


def replace(admin: AdminFixture, kind: int, name: str, *rows: tuple[Any, ...], version: int = 2) -> ErrorCode:
    (response,) = admin.ask(alter_configs, version, resources=[resource(kind, name, *rows)]).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert (response.error_message is None) == (response.error_code is ErrorCode.none)
    return ErrorCode(response.error_code)


def change(admin: AdminFixture, kind: int, name: str, *rows: tuple[Any, ...], version: int = 1) -> ErrorCode:
    (response,) = admin.ask(incremental_alter_configs, version, resources=[resource(kind, name, *rows)]).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert (response.error_message is None) == (response.error_code is ErrorCode.none)
    return ErrorCode(response.error_code)


@pytest.mark.parametrize("version", alter_configs.KEY.versions)
def test_every_version_replaces_all_configs(admin: AdminFixture, version: int) -> None:
    assert replace(admin, TOPIC, "flights", ("flush.policy", "os"), version=version) is ErrorCode.none
    assert configs(admin) == {"flush.policy": "os"}


@pytest.mark.parametrize("version", incremental_alter_configs.KEY.versions)
def test_every_version_changes_single_configs(admin: AdminFixture, version: int) -> None:
    code = change(admin, TOPIC, "flights", ("flush.policy", SET, "os"), version=version)
    assert code is ErrorCode.none
    assert configs(admin) == {"retention.ms": "5000", "flush.policy": "os"}
    assert change(admin, TOPIC, "flights", ("retention.ms", DELETE, None), version=version) is ErrorCode.none
    assert configs(admin) == {"flush.policy": "os"}


def test_lists_are_appended_to_and_subtracted_from(admin: AdminFixture) -> None:
    """APPEND to an unset config starts from its default."""
    assert change(admin, TOPIC, "flights", ("cleanup.policy", APPEND, "compact")) is ErrorCode.none
    assert configs(admin)["cleanup.policy"] == "delete,compact"
    assert change(admin, TOPIC, "flights", ("cleanup.policy", APPEND, "compact")) is ErrorCode.none
    assert configs(admin)["cleanup.policy"] == "delete,compact"
    assert change(admin, TOPIC, "flights", ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.none
    assert configs(admin)["cleanup.policy"] == "compact"


def test_a_list_grows_up_to_the_longest_value(admin: AdminFixture) -> None:
    def append(first: int) -> ErrorCode:
        replicas = ",".join(f"{number}:1" for number in range(first, first + 3000))
        return change(admin, TOPIC, "flights", ("leader.replication.throttled.replicas", APPEND, replicas))

    assert append(10_000) is ErrorCode.none
    before = configs(admin)
    assert append(20_000) is ErrorCode.invalid_request
    assert configs(admin) == before


def test_a_brokers_list_is_built_on_its_settings(admin: AdminFixture) -> None:
    assert change(admin, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) is ErrorCode.none
    assert admin.image.configs_of_all_brokers == {"log.cleanup.policy": "delete,compact"}
    assert change(admin, BROKER, "1", ("log.cleanup.policy", SUBTRACT, "delete")) is ErrorCode.none
    assert admin.image.configs_of_broker(1) == {"log.cleanup.policy": "compact"}


def test_the_list_of_all_brokers_is_not_built_on_that_of_one(admin: AdminFixture) -> None:
    assert change(admin, BROKER, "1", ("log.cleanup.policy", SET, "compact")) is ErrorCode.none
    assert change(admin, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) is ErrorCode.none
    assert admin.image.configs_of_all_brokers == {"log.cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (("no.such", SET, "1"), ErrorCode.invalid_config),
        (("retention.ms", SET, "soon"), ErrorCode.invalid_config),
        (("retention.ms", SET, None), ErrorCode.invalid_request),
        (("retention.ms", APPEND, "1"), ErrorCode.invalid_config),
        (("no.such", SUBTRACT, "1"), ErrorCode.invalid_config),
        (("cleanup.policy", APPEND, "burn"), ErrorCode.invalid_config),
        (("cleanup.policy", APPEND, None), ErrorCode.invalid_request),
        (("retention.ms", 9, "1"), ErrorCode.invalid_request),
        (("leader.replication.throttled.replicas", SET, "1:1," * 9000), ErrorCode.invalid_request),
        (("leader.replication.throttled.replicas", SUBTRACT, "1:1," * 9000), ErrorCode.invalid_request),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(admin: AdminFixture, row: tuple[Any, ...], code: ErrorCode) -> None:
    assert change(admin, TOPIC, "flights", ("flush.policy", SET, "os"), row) is code
    assert configs(admin) == {"retention.ms": "5000"}


def test_configs_are_judged_together(admin: AdminFixture) -> None:
    rows = (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5"))
    assert replace(admin, TOPIC, "flights", *rows) is ErrorCode.invalid_config
    assert change(admin, TOPIC, "flights", ("max.compaction.lag.ms", SET, "5")) is ErrorCode.none
    assert change(admin, TOPIC, "flights", ("min.compaction.lag.ms", SET, "6")) is ErrorCode.invalid_config


@pytest.mark.parametrize("api", [alter_configs, incremental_alter_configs])
def test_validation_alone_changes_nothing(admin: AdminFixture, api: Any) -> None:
    rows = [resource(TOPIC, "flights", ("flush.policy", SET, "os"))]
    (response,) = admin.ask(api, api.KEY.versions[-1], resources=rows, validate_only=True).responses
    assert response.error_code is ErrorCode.none
    assert configs(admin) == {"retention.ms": "5000"}


@pytest.mark.parametrize("api", [alter_configs, incremental_alter_configs])
def test_a_resource_that_comes_twice_is_refused(admin: AdminFixture, api: Any) -> None:
    rows = [resource(TOPIC, "flights", ("flush.policy", SET, "os"))] * 2
    responses = admin.ask(api, api.KEY.versions[-1], resources=rows).responses
    assert [response.error_code for response in responses] == [ErrorCode.invalid_request] * 2
    assert configs(admin) == {"retention.ms": "5000"}


def test_a_key_that_comes_twice_is_refused(admin: AdminFixture) -> None:
    rows = (("flush.policy", SET, "os"), ("flush.policy", DELETE, None))
    assert change(admin, TOPIC, "flights", *rows) is ErrorCode.invalid_request


def test_a_replacement_without_a_value_is_refused(admin: AdminFixture) -> None:
    assert replace(admin, TOPIC, "flights", ("flush.policy", None)) is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "", ErrorCode.invalid_request),
        (BROKER, "7", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (8, "1", ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_configured_is_said_by_its_code(
    admin: AdminFixture, kind: int, name: str, code: ErrorCode
) -> None:
    assert change(admin, kind, name, ("flush.policy", SET, "os")) is code
    assert replace(admin, kind, name, ("flush.policy", "os")) is code


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (("node.id", SET, "5"), ErrorCode.invalid_request),
        (("no.such", SET, "5"), ErrorCode.invalid_config),
        (("log.retention.ms", SET, "-2"), ErrorCode.invalid_config),
        (("flush.policy", SET, "never"), ErrorCode.invalid_config),
        (("log.retention.ms", APPEND, "1"), ErrorCode.invalid_config),
    ],
)
def test_a_broker_takes_only_what_it_can_change_while_it_runs(
    admin: AdminFixture, row: tuple[Any, ...], code: ErrorCode
) -> None:
    assert change(admin, BROKER, "1", row) is code
    assert admin.image.broker_configs == {}


def test_a_brokers_configs_come_and_go(admin: AdminFixture) -> None:
    assert change(admin, BROKER, "1", ("log.retention.ms", SET, "9")) is ErrorCode.none
    assert change(admin, BROKER, "", ("flush.policy", SET, "os")) is ErrorCode.none
    assert admin.image.broker_configs == {"1": {"log.retention.ms": "9"}, "": {"flush.policy": "os"}}
    assert replace(admin, BROKER, "1") is ErrorCode.none
    assert change(admin, BROKER, "", ("flush.policy", DELETE, None)) is ErrorCode.none
    assert admin.image.broker_configs == {}


def test_changes_that_meet_are_all_made(admin: AdminFixture) -> None:
    """Concurrent changes start from the same configs; the later ones are computed again."""

    async def append(name: str, policy: str, other: str) -> ErrorCode:
        rows = [resource(TOPIC, name, ("cleanup.policy", APPEND, policy), (other, SET, "7"))]
        (response,) = (await admin.answer(incremental_alter_configs, 1, resources=rows)).responses
        return ErrorCode(response.error_code)

    async def together() -> list[ErrorCode]:
        return await asyncio.gather(
            append("flights", "compact", "segment.ms"),
            append("flights", "delete", "retention.ms"),
            append("flights", "compact", "retention.bytes"),
        )

    assert admin.runner.run(together()) == [ErrorCode.none] * 3
    assert configs(admin) == {
        "cleanup.policy": "delete,compact",
        "segment.ms": "7",
        "retention.ms": "7",
        "retention.bytes": "7",
    }


def test_one_resource_that_is_refused_does_not_hold_up_the_others(admin: AdminFixture) -> None:
    rows = [
        resource(TOPIC, "none", ("flush.policy", SET, "os")),
        resource(TOPIC, "flights", ("flush.policy", SET, "os")),
    ]
    responses = admin.ask(incremental_alter_configs, 1, resources=rows).responses
    assert [row.error_code for row in responses] == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]


def test_only_directories_of_the_broker_are_cordoned() -> None:
    admin = AdminFixture(brokers=2, log_dirs=("/a", "/b"))
    for broker, directories, code in (
        ("1", "/a,/nonexistent", ErrorCode.invalid_request),
        ("1", "/a,/b", ErrorCode.none),
        ("2", "/a", ErrorCode.invalid_request),
        ("", "/a", ErrorCode.invalid_request),
        ("2", "*", ErrorCode.none),
        ("", "*", ErrorCode.none),
    ):
        assert change(admin, BROKER, broker, ("cordoned.log.dirs", SET, directories)) is code, (broker, directories)
    assert change(admin, BROKER, "2", ("cordoned.log.dirs", DELETE, None)) is ErrorCode.none
    admin.close()
