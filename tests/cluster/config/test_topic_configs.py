"""Topic configs: the table, their effect on a topic's logs, and refused values."""

from dataclasses import fields

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.rows import BrokerConfig, Source, Synonym, broker_config
from cordwood.cluster.config.settings import SETTINGS, Settings
from cordwood.cluster.config.topic_configs import (
    TOPIC_CONFIGS,
    describe,
    ignored,
    log_config,
    validate,
    validate_changes,
    value_of,
)
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.image import Image
from cordwood.storage.config import FlushPolicy, LogConfig

PLAIN = BrokerConfig(Settings())
ARCHIVING = BrokerConfig(Settings(archive_url="s3://bucket/prefix"))


@pytest.mark.parametrize("key", TOPIC_CONFIGS)
def test_every_row_of_the_table_holds_together(key: str) -> None:
    row = TOPIC_CONFIGS[key]
    assert row.documentation.endswith(".")
    assert all(SETTINGS[broker_key].is_dynamic for broker_key in row.broker_keys)
    assert {SETTINGS[broker_key].type.choices for broker_key in row.broker_keys} <= {row.type.choices}
    assert value_of(key, {}, PLAIN) is not None


def test_the_table_is_in_the_order_of_its_keys() -> None:
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)
    assert [row.key for row in describe({}, PLAIN)] == sorted(TOPIC_CONFIGS)


def test_a_topic_without_configs_gets_what_logs_have_by_default() -> None:
    assert log_config({}, Settings()) == LogConfig()


def test_every_field_of_a_logs_config_can_be_set() -> None:
    configs = {
        "segment.bytes": "1000",
        "segment.ms": "1001",
        "index.interval.bytes": "1002",
        "segment.index.bytes": "1003",
        "retention.ms": "1004",
        "retention.bytes": "1005",
        "max.message.bytes": "1006",
        "flush.policy": "os",
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "1007",
        "message.timestamp.after.max.ms": "1008",
        "file.delete.delay.ms": "1010",
        "min.compaction.lag.ms": "1011",
        "max.compaction.lag.ms": "1012",
        "min.cleanable.dirty.ratio": "0.25",
        "delete.retention.ms": "1013",
    }
    configs |= {"remote.storage.enable": "true", "local.retention.ms": "1003", "local.retention.bytes": "1004"}
    validate(configs, ARCHIVING)
    made = log_config(configs, Settings(producer_id_expiration_ms=1009))
    assert made == LogConfig(
        segment_bytes=1000,
        segment_ms=1001,
        index_interval_bytes=1002,
        index_bytes_max=1003,
        retention_ms=1004,
        retention_bytes=1005,
        batch_bytes_max=1006,
        flush_policy=FlushPolicy.OS,
        producer_expiry_ms=1009,
        compacted=True,
        deletable=False,
        log_append_time=True,
        timestamp_before_max_ms=1007,
        timestamp_after_max_ms=1008,
        delete_delay_ms=1010,
        min_compaction_lag_ms=1011,
        max_compaction_lag_ms=1012,
        min_cleanable_dirty_ratio=0.25,
        delete_retention_ms=1013,
        is_archived=True,
        local_retention_ms=1003,
        local_retention_bytes=1004,
    )
    default = LogConfig()
    assert [
        field.name for field in fields(LogConfig) if getattr(made, field.name) == getattr(default, field.name)
    ] == []


def test_files_stay_as_long_as_the_broker_was_started_with_unless_somebody_said_otherwise_since() -> None:
    key = "log.segment.delete.delay.ms"
    started = Settings(log_segment_delete_delay_ms=1, given=frozenset({key}))
    assert log_config({}, started).delete_delay_ms is None
    assert log_config({}, BrokerConfig(started, own={key: "2"})).delete_delay_ms == 2
    assert log_config({}, BrokerConfig(started, all_brokers={key: "3"})).delete_delay_ms == 3
    assert log_config({"file.delete.delay.ms": "4"}, BrokerConfig(started, own={key: "2"})).delete_delay_ms == 4


def test_no_more_lies_between_two_index_entries_than_may_be_read_at_a_time() -> None:
    made = log_config({"index.interval.bytes": str((1 << 31) - 1)}, Settings())
    assert made.index_interval_bytes == 256 << 10


def test_both_cleanup_policies_at_once() -> None:
    made = log_config({"cleanup.policy": "compact,delete"}, Settings())
    assert (made.compacted, made.deletable) == (True, True)


def test_a_segment_of_a_compacted_topic_is_rolled_before_its_records_must_be_compacted() -> None:
    configs = {"max.compaction.lag.ms": "5"}
    assert log_config({**configs, "cleanup.policy": "compact"}, Settings()).segment_ms == 5
    assert log_config({**configs, "cleanup.policy": "delete"}, Settings()).segment_ms == 7 * 24 * 3600 * 1000


@pytest.mark.parametrize("text", ["", " ", ","])
def test_without_a_cleanup_policy_everything_is_kept(text: str) -> None:
    validate({"cleanup.policy": text}, PLAIN)
    made = log_config({"cleanup.policy": text}, Settings())
    assert (made.compacted, made.deletable) == (False, False)
    everything = log_config({}, Settings(log_cleanup_policy=()))
    assert (everything.compacted, everything.deletable) == (False, False)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        (Settings(), 168 * 3600 * 1000),
        (Settings(log_retention_hours=2), 7_200_000),
        (Settings(log_retention_hours=2, log_retention_minutes=3), 180_000),
        (Settings(log_retention_hours=2, log_retention_minutes=3, log_retention_ms=4), 4),
        (Settings(log_retention_hours=-1), -1),
    ],
)
def test_retention_comes_from_the_finest_unit_that_is_set(settings: Settings, retention_ms: int) -> None:
    assert log_config({}, settings).retention_ms == retention_ms


def test_a_layer_nearer_to_the_topic_goes_first_in_any_unit() -> None:
    image = Image(broker_configs={"": {"log.retention.hours": "2"}, "1": {"log.retention.minutes": "3"}})
    settings = Settings(log_retention_ms=4)
    assert log_config({}, broker_config(settings, image)).retention_ms == 180_000
    others = BrokerConfig(settings, {}, image.configs_of_all_brokers)
    assert log_config({}, others).retention_ms == 7_200_000
    assert log_config({"retention.ms": "5"}, others).retention_ms == 5


def test_a_row_says_where_its_value_comes_from() -> None:
    broker = BrokerConfig(Settings(min_insync_replicas=2), {"flush.policy": "os"})
    rows = {row.key: row for row in describe({"segment.ms": "5"}, broker)}
    assert (rows["segment.ms"].value, rows["segment.ms"].source) == ("5", Source.DYNAMIC_TOPIC)
    assert (rows["flush.policy"].value, rows["flush.policy"].source) == ("os", Source.DYNAMIC_BROKER)
    assert (rows["min.insync.replicas"].value, rows["min.insync.replicas"].source) == ("2", Source.STATIC_BROKER)
    assert (rows["preallocate"].value, rows["preallocate"].source) == ("false", Source.DEFAULT)


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: it must be a whole number of at least -1",
        ),
        ({"segment.bytes": "3000000000"}, "a whole number of at least 14"),
        ({"min.cleanable.dirty.ratio": "2"}, "a number from 0 to 1"),
        ({"preallocate": "yes"}, "true or false"),
        ({"flush.policy": "never"}, "one of group, os"),
        ({"cleanup.policy": "delete,burn"}, "a comma-separated list of compact, delete"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "must not be more than"),
        ({"remote.storage.enable": "true"}, "the brokers have no archive: set archive.url"),
        ({"local.retention.ms": "-3"}, "a whole number of at least -2"),
    ],
)
def test_what_may_not_be_set_gets_a_sentence(configs: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence) as refusal:
        validate(configs, PLAIN)
    assert refusal.value.code is ErrorCode.invalid_config


def test_values_may_have_space_around_them() -> None:
    validate({"retention.ms": " 5 ", "cleanup.policy": "compact, delete"}, PLAIN)
    assert log_config({"retention.ms": " 5 "}, Settings()).retention_ms == 5


def test_a_value_that_is_none_is_passed_over_for_what_the_broker_has() -> None:
    configs = {"retention.ms": "abc", "flush.policy": "never", "a.newer.key": "1", "segment.bytes": "2000"}
    assert log_config(configs, Settings(log_retention_ms=5)) == log_config(
        {"segment.bytes": "2000"}, Settings(log_retention_ms=5)
    )
    assert list(ignored(configs)) == [
        "retention.ms is 'abc', and must be a whole number of at least -1",
        "flush.policy is 'never', and must be one of group, os",
        "a.newer.key is not known",
    ]


def test_a_value_of_the_brokers_that_is_none_is_passed_over_for_the_next_layer() -> None:
    image = Image(broker_configs={"1": {"log.retention.ms": "soon"}, "": {"log.retention.ms": "7"}})
    broker = broker_config(Settings(node_id=1), image)
    assert value_of("retention.ms", {}, broker) == 7
    row = next(row for row in broker.rows() if row.key == "log.retention.ms")
    assert (row.value, row.source) == ("7", Source.DYNAMIC_ALL_BROKERS)


def test_describe_says_which_value_is_passed_over_and_why() -> None:
    (row,) = describe({"retention.ms": "abc"}, BrokerConfig(Settings(log_retention_ms=5)), ["retention.ms"])
    assert (row.value, row.source) == ("5", Source.STATIC_BROKER)
    assert row.synonyms[0] == Synonym(
        "retention.ms", "abc", Source.DYNAMIC_TOPIC, mistake="a whole number of at least -1"
    )
    assert row.documentation.endswith(
        "The value 'abc' of retention.ms is ignored: it must be a whole number of at least -1."
    )


def test_a_change_is_judged_by_what_it_changes() -> None:
    own = {"retention.ms": "abc", "a.newer.key": "1"}
    validate_changes(own, {"segment.bytes": "2000"}, PLAIN)
    validate_changes(own, {"retention.ms": None}, PLAIN)
    with pytest.raises(Refused, match="retention"):
        validate_changes(own, {"retention.ms": "def"}, PLAIN)
    with pytest.raises(Refused, match="must not be more than"):
        validate_changes({"max.compaction.lag.ms": "8"}, {"min.compaction.lag.ms": "9"}, PLAIN)


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize(("local", "whole"), [("6", "5"), ("-1", "5")])
def test_the_disk_keeps_no_more_than_the_whole_topic(unit: str, local: str, whole: str) -> None:
    own = {"remote.storage.enable": "true", f"retention.{unit}": whole}
    change = {f"local.retention.{unit}": local}
    with pytest.raises(Refused, match=rf"local.retention.{unit} \({local}\) must not be more than"):
        validate_changes(own, change, ARCHIVING)
    with pytest.raises(Refused, match="must not be more than"):
        validate({**own, **change}, ARCHIVING)
    validate_changes({f"retention.{unit}": whole}, change, ARCHIVING)
    validate_changes(own, {f"local.retention.{unit}": "5"}, ARCHIVING)
    validate_changes(own, {f"local.retention.{unit}": "-2"}, ARCHIVING)
    validate_changes(own, {f"local.retention.{unit}": local, f"retention.{unit}": "-1"}, ARCHIVING)


def test_a_topic_of_an_archive_that_is_gone_keeps_its_config_and_may_change_others() -> None:
    own = {"remote.storage.enable": "true"}
    assert log_config(own, PLAIN).is_archived
    validate_changes(own, {"retention.ms": "5"}, PLAIN)


@pytest.mark.parametrize("key", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"])
def test_throttled_replicas_are_partitions_with_brokers(key: str) -> None:
    for text in ("", "*", "0:1", "0:1,12:3"):
        validate({key: text}, PLAIN)
    for text in ("0", "0:1,*", "a:b", "0:1:2", ":1"):
        with pytest.raises(Refused, match="PARTITION:BROKER"):
            validate({key: text}, PLAIN)
