"""Writer options and table schemas: each is parsed, or refused with a sentence."""

import pytest

from cordwood.spark.errors import UserError
from cordwood.spark.sink_options import SinkOptions, sink_options

GIVEN = {"kafka.bootstrap.servers": "one:9092", "topic": "t"}
VALUE = [("value", "string")]
HEADERS = "array<struct<key:string,value:binary>>"


def parsed(given: dict[str, str], fields: list[tuple[str, str]] = VALUE, *, overwrite: bool = False) -> SinkOptions:
    return sink_options(given, fields, overwrite=overwrite)


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


@pytest.mark.parametrize("name", ["transactionalId", "kafka.transactional.id", "exactlyOnce", "deliveryGuarantee"])
def test_exactly_once_is_refused_until_there_are_transactions(name: str) -> None:
    with pytest.raises(UserError, match="records are written at least once, because transactions are not supported"):
        parsed({**GIVEN, name: "x"})


@pytest.mark.parametrize(
    ("given", "fields", "sentence"),
    [
        ({"kafka.acks": "1"}, VALUE, "acks can only be all"),
        ({"kafka.enable.idempotence": "false"}, VALUE, "a retry could write a record twice"),
        ({"kafka.linger": "5"}, VALUE, "there is no option kafka.linger: did you mean"),
        ({"compression": "brotli"}, VALUE, "it can be none or gzip or snappy or lz4 or zstd"),
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
