"""Writer options and table schemas: each is parsed, or refused with a sentence."""

import pytest

from cordwood.spark.errors import UserError
from cordwood.spark.exactly_once.writes import WriteId
from cordwood.spark.sink_options import SinkOptions, WriteMode, sink_options

GIVEN = {"kafka.bootstrap.servers": "one:9092", "topic": "t"}
ONCE = {**GIVEN, "deliveryGuarantee": "exactly-once", "transactionalId": "w", "transactionVersion": "0"}
VALUE = [("value", "string")]
HEADERS = "array<struct<key:string,value:binary>>"


def parsed(
    given: dict[str, str],
    fields: list[tuple[str, str]] = VALUE,
    *,
    overwrite: bool = False,
    mode: WriteMode = WriteMode.BATCH,
) -> SinkOptions:
    return sink_options(given, fields, overwrite=overwrite, mode=mode)


def test_records_are_on_all_in_sync_replicas_before_they_count() -> None:
    options = parsed({**GIVEN, "kafka.compression.type": "zstd", "lingerMs": "20ms"})
    assert options.topic == "t"
    assert dict(options.producer) == {
        "bootstrap.servers": "one:9092",
        "client.id": "cordwood-spark",
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "zstd",
        "linger.ms": 20,
    }


def test_a_table_that_was_read_can_be_written_again() -> None:
    read = [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", HEADERS),
    ]  # fmt: skip
    assert parsed({"kafka.bootstrap.servers": "one:9092"}, read).topic is None


def test_delivery_is_at_least_once_unless_it_is_asked_for() -> None:
    assert parsed(GIVEN).exactly_once is None
    assert parsed({**GIVEN, "deliveryGuarantee": "at-least-once"}).exactly_once is None


def test_an_exactly_once_write_has_a_name_and_a_version() -> None:
    given = {**ONCE, "transactionTimeoutMs": "1m", "deliveryTimeoutMs": "30s", "retryTimeoutMs": "5s"}
    once = parsed(given).exactly_once
    assert once is not None
    assert once.write == WriteId("w", 0)
    assert (once.timeout_ms, once.client.retry_timeout_ms) == (60_000, 5_000)
    assert (once.commits_topic, once.fail_on_missing_commit) == ("cordwood-spark-commits", True)


def test_an_exactly_once_stream_is_named_by_its_query() -> None:
    once = parsed({**GIVEN, "deliveryGuarantee": "Exactly-Once"}, mode=WriteMode.STREAM).exactly_once
    assert once is not None
    assert once.write is None
    with pytest.raises(UserError, match=r"transactionalId is for df\.write: a stream is named by its checkpoint"):
        parsed(ONCE, mode=WriteMode.STREAM)


@pytest.mark.parametrize(
    ("given", "fields", "sentence"),
    [
        ({"kafka.acks": "1"}, VALUE, "acks can only be all"),
        ({"kafka.enable.idempotence": "false"}, VALUE, "a retry could write a record twice"),
        ({"kafka.linger": "5"}, VALUE, "there is no option kafka.linger: did you mean"),
        ({"compression": "brotli"}, VALUE, "it can be none or gzip or snappy or lz4 or zstd"),
        ({"exactlyOnce": "true"}, VALUE, "set deliveryGuarantee to exactly-once"),
        ({"kafka.transactional.id": "w"}, VALUE, "each task has its own transactional id"),
        ({"transactionalId": "w"}, VALUE, "transactionalId is for exactly-once delivery: set deliveryGuarantee"),
        ({**ONCE, "transactionVersion": "-1"}, VALUE, "transactionVersion is '-1': it must be a whole number"),
        ({"deliveryGuarantee": "exactly-once"}, VALUE, "needs transactionalId, its name, and transactionVersion"),
        ({**ONCE, "transactionTimeoutMs": "9s"}, VALUE, "transactionTimeoutMs is 9000: it must be 10000 ms or more"),
        ({**ONCE, "transactionTimeoutMs": "1m", "deliveryTimeoutMs": "2m"}, VALUE, "must be delivered within its"),
        ({}, [("key", "string")], "there is no column value: make one"),
        ({}, [("value", "int")], "column value is int: to be written it must be binary or string"),
        ({}, [*VALUE, ("partition", "bigint")], "column partition is bigint: to be written it must be int"),
        ({}, [*VALUE, ("topics", "string")], "column topics cannot be written: did you mean topic?"),
        ({}, [*VALUE, ("weather", "string")], "a record is made of key, value, topic, partition, headers"),
    ],
)
def test_what_is_wrong_gets_a_sentence(given: dict[str, str], fields: list[tuple[str, str]], sentence: str) -> None:
    with pytest.raises(UserError) as wrong:
        parsed({**GIVEN, **given}, fields)
    assert sentence in str(wrong.value)


def test_a_topic_is_needed_in_the_options_or_in_the_rows() -> None:
    where = {"kafka.bootstrap.servers": "one:9092"}
    with pytest.raises(UserError, match="the topic is missing"):
        parsed(where)
    assert parsed(where, [*VALUE, ("topic", "string")]).topic is None


def test_a_log_is_not_overwritten() -> None:
    with pytest.raises(UserError, match="a log supports only appends"):
        parsed(GIVEN, overwrite=True)
