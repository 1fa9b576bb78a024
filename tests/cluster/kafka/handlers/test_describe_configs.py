"""DescribeConfigs in every version: each key with its value and source."""

from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.settings import SECRETS, SETTINGS
from cordwood.cluster.config.topic_configs import TOPIC_CONFIGS
from cordwood.cluster.kafka.handlers import describe_configs
from cordwood.cluster.metadata.commands import AlterConfigs, BrokerId, ConfigChange, CreateTopic, ResourceType

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_ALL, STATIC, DEFAULT = 1, 2, 3, 4, 5
INT, LONG, LIST = 3, 5, 7
NAMED_OFTEN = 3000


@pytest.fixture
def admin(admin: AdminFixture) -> AdminFixture:
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),), (("retention.ms", "5000"),)))
    return admin


def set_for(admin: AdminFixture, broker: str, key: str, value: str) -> None:
    admin.propose(AlterConfigs(ResourceType.BROKER, broker, (ConfigChange(key, None, value),)))


def describe(admin: AdminFixture, kind: int, name: str, version: int = 4, **options: Any) -> Any:
    keys = options.pop("keys", None)
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = admin.ask(describe_configs, version, resources=[resource], **options).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def rows_of(result: Any) -> dict[str, Any]:
    assert result.error_code is ErrorCode.none
    return {row.name: row for row in result.configs}


@pytest.mark.parametrize("version", describe_configs.KEY.versions)
def test_every_version_has_all_of_a_topic(admin: AdminFixture, version: int) -> None:
    rows = rows_of(describe(admin, TOPIC, "flights", version))
    assert list(rows) == sorted(TOPIC_CONFIGS)
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("5000", DYNAMIC_TOPIC)
    assert (rows["cleanup.policy"].value, rows["cleanup.policy"].config_source) == ("delete", DEFAULT)
    assert not any(row.read_only or row.is_sensitive or row.synonyms for row in rows.values())
    if version >= 3:
        assert [rows[key].config_type for key in ("segment.bytes", "retention.ms", "cleanup.policy")] == [
            INT,
            LONG,
            LIST,
        ]
        assert rows["retention.ms"].documentation is None


@pytest.mark.parametrize("version", describe_configs.KEY.versions)
def test_every_version_has_all_of_a_broker(admin: AdminFixture, version: int) -> None:
    rows = rows_of(describe(admin, BROKER, "1", version))
    assert set(rows) == set(SETTINGS)
    assert rows["node.id"].read_only
    assert not rows["log.retention.hours"].read_only
    assert (rows["log.retention.ms"].value, rows["log.retention.hours"].value) == (None, "168")


def test_the_advertised_listeners_are_those_that_clients_get(admin: AdminFixture) -> None:
    row = rows_of(describe(admin, BROKER, "1", include_synonyms=True))["advertised.listeners"]
    assert (row.value, row.config_source) == ("PLAINTEXT://host-1:9092,LAN://lan-1:9093", STATIC)
    assert row.read_only
    assert (row.synonyms[0].value, row.synonyms[0].source) == (row.value, STATIC)


def test_a_filter_leaves_the_keys_that_it_names(admin: AdminFixture) -> None:
    assert set(rows_of(describe(admin, TOPIC, "flights", keys=("retention.ms", "no.such")))) == {"retention.ms"}
    assert len(rows_of(describe(admin, TOPIC, "flights", keys=()))) == len(TOPIC_CONFIGS)


def test_a_resource_that_is_named_thousands_of_times_is_described_once(admin: AdminFixture) -> None:
    named = {"resource_type": TOPIC, "resource_name": "flights", "configuration_keys": None}
    options = {"include_synonyms": True, "include_documentation": True}
    once, often = (admin.ask(describe_configs, 4, resources=[named] * count, **options) for count in (1, NAMED_OFTEN))
    assert len(often.results) == 1
    # Equal messages have the same number of bytes.
    assert often == once


def test_documentation_comes_on_demand(admin: AdminFixture) -> None:
    rows = rows_of(describe(admin, TOPIC, "flights", include_documentation=True))
    assert "fdatasync" in rows["flush.policy"].documentation
    assert all(row.documentation for row in rows.values())


def synonyms(result: Any, key: str) -> list[tuple[str, str | None, int]]:
    return [(row.name, row.value, row.source) for row in rows_of(result)[key].synonyms]


def test_synonyms_name_every_place_that_a_value_comes_from() -> None:
    admin = AdminFixture(log_retention_minutes=30)
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),), (("retention.ms", "5000"),)))
    admin.propose(CreateTopic(UUID(int=2), "other", ((BrokerId(1),),)))
    set_for(admin, "", "log.retention.hours", "2")
    set_for(admin, "1", "log.retention.ms", "7000")
    below = [
        ("log.retention.ms", "7000", DYNAMIC_BROKER),
        ("log.retention.hours", "2", DYNAMIC_ALL),
        ("log.retention.minutes", "30", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    own = ("retention.ms", "5000", DYNAMIC_TOPIC)
    assert synonyms(describe(admin, TOPIC, "flights", include_synonyms=True), "retention.ms") == [own, *below]
    other = describe(admin, TOPIC, "other", include_synonyms=True)
    assert synonyms(other, "retention.ms") == below
    row = rows_of(other)["retention.ms"]
    assert (row.value, row.config_source) == ("7000", DYNAMIC_BROKER)
    admin.close()


def test_hours_and_minutes_are_shown_in_the_topics_unit() -> None:
    admin = AdminFixture(log_retention_minutes=30, log_roll_hours=2)
    admin.propose(CreateTopic(UUID(int=1), "flights", ((BrokerId(1),),)))
    rows = rows_of(describe(admin, TOPIC, "flights"))
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("1800000", STATIC)
    assert (rows["segment.ms"].value, rows["segment.ms"].config_source) == ("7200000", STATIC)
    admin.close()


def test_what_all_brokers_were_given_is_under_the_empty_name(admin: AdminFixture) -> None:
    assert rows_of(describe(admin, BROKER, "")) == {}
    set_for(admin, "", "flush.policy", "os")
    rows = rows_of(describe(admin, BROKER, ""))
    assert {key: (row.value, row.config_source) for key, row in rows.items()} == {"flush.policy": ("os", DYNAMIC_ALL)}
    assert rows_of(describe(admin, BROKER, "1"))["flush.policy"].config_source == DYNAMIC_ALL


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (TOPIC, "", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (BROKER, "01", ErrorCode.invalid_request),
        (BROKER, "²", ErrorCode.invalid_request),
        (BROKER, "9" * 5000, ErrorCode.invalid_request),
        (8, "1", ErrorCode.invalid_request),
        (16, "", ErrorCode.invalid_request),
        (0, "", ErrorCode.invalid_request),
    ],
)
def test_what_has_no_configs_is_said_by_its_code(admin: AdminFixture, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(admin, kind, name)
    assert result.error_code is code
    assert result.error_message
    assert result.configs == ()


def test_another_broker_must_be_asked_itself() -> None:
    admin = AdminFixture(brokers=2)
    result = describe(admin, BROKER, "2")
    assert result.error_code is ErrorCode.invalid_request
    assert "expected 1, but received 2" in result.error_message
    admin.close()


def test_no_response_has_a_secret() -> None:
    secrets = {key: f"hidden {number}" for number, key in enumerate(sorted(SECRETS))}
    admin = AdminFixture(**{key.replace(".", "_"): value for key, value in secrets.items()})
    for name in ("1", ""):
        rows = rows_of(describe(admin, BROKER, name, include_synonyms=True, include_documentation=True))
        assert "hidden" not in repr(rows)
        assert all(rows[key].is_sensitive for key in secrets if key in rows)
    admin.close()
