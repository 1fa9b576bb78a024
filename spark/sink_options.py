"""Options of the sink, named as in Spark's Kafka sink, and validation of the written columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cordwood.spark.columns import Column
from cordwood.spark.errors import WrongOption, WrongSchema, nearest
from cordwood.spark.options import Options, bootstrap

Setting = str | int | bool


class SinkCompression(StrEnum):
    """Kafka's names of the compression types."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


KNOWN: Mapping[str, tuple[str, ...]] = {
    "bootstrapServers": ("kafka.bootstrap.servers",),
    "topic": (),
    "checkpointLocation": (),
    "clientId": ("kafka.client.id",),
    "requestTimeoutMs": ("kafka.request.timeout.ms",),
    "deliveryTimeoutMs": ("kafka.delivery.timeout.ms",),
    "lingerMs": ("kafka.linger.ms",),
    "batchBytes": ("kafka.batch.size",),
    "requestBytesMax": ("kafka.max.request.size",),
    "compression": ("kafka.compression.type",),
    "kafka.acks": (),
    "kafka.enable.idempotence": (),
    "kafka.security.protocol": (),
}
"""The options with their other spellings. Spark itself passes a stream's checkpointLocation on."""

# Exactly-once begins here: with transactions these become options, and `StreamSink.commit` commits the transaction.
_NO_TRANSACTIONS = (
    "records are written at least once, because transactions are not supported: leave the option out,"
    " and let readers drop duplicates by a key"
)

REFUSED: Mapping[str, str] = {
    "path": "a log has no path: name the topic with the option topic, or in a column named topic",
    "transactionalId": _NO_TRANSACTIONS,
    "kafka.transactional.id": _NO_TRANSACTIONS,
    "exactlyOnce": _NO_TRANSACTIONS,
    "deliveryGuarantee": _NO_TRANSACTIONS,
    "subscribe": "use the option topic to write, or a column named topic",
    "includeHeaders": "headers are always written if the table has a column headers: leave the option out",
    "kafka.key.serializer": "keys are written as bytes: leave the option out",
    "kafka.value.serializer": "values are written as bytes: leave the option out",
}
"""Unsupported options, with the alternative."""

ONLY_VALUES = {
    "kafka.acks": (("all", "-1"), "a record must be acknowledged by all in-sync replicas: acks can only be all"),
    "kafka.enable.idempotence": (
        ("true",),
        "without idempotence a retry could write a record twice: it can only be true",
    ),
    "kafka.security.protocol": (("plaintext",), "only PLAINTEXT is supported"),
}

_HEADERS = "array<struct<key:string,value:binary>>"
TYPES: Mapping[Column, tuple[str, ...]] = {
    Column.KEY: ("binary", "string"),
    Column.VALUE: ("binary", "string"),
    Column.TOPIC: ("string",),
    Column.PARTITION: ("int",),
    Column.HEADERS: (_HEADERS,),
}
"""The columns of a written record, with their allowed types."""

_ONLY_READ = frozenset(Column) - frozenset(TYPES)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a sink. `producer` is librdkafka's configuration. If `topic` is None, each row has a topic."""

    topic: str | None
    producer: Mapping[str, Setting]


def sink_options(given: Mapping[str, str], fields: Sequence[tuple[str, str]], *, overwrite: bool) -> SinkOptions:
    """Parse the user's options for a table with these columns: (name, simple type string).

    Raises WrongOption and WrongSchema with a message.
    """
    options = Options(given, KNOWN, REFUSED)
    if overwrite:
        raise WrongOption('a log supports only appends: write with mode("append")')
    for name, (values, reason) in ONLY_VALUES.items():
        value = options.text(name)
        if value is not None and value.lower() not in values:
            raise WrongOption(f"{name} is {value!r}: {reason}")
    topic = options.text("topic")
    _check_columns(dict(fields), topic)
    return SinkOptions(topic, _producer(options))


def _check_columns(types: Mapping[str, str], topic: str | None) -> None:
    for name, type_name in types.items():
        if name in _ONLY_READ:
            continue
        if name not in TYPES:
            meant = nearest(name, TYPES)
            hint = f"did you mean {meant}?" if meant else f"a record is made of {', '.join(TYPES)}"
            raise WrongSchema(f"column {name} cannot be written: {hint}")
        allowed = TYPES[Column(name)]
        if type_name not in allowed:
            raise WrongSchema(f"column {name} is {type_name}: to be written it must be {' or '.join(allowed)}")
    if Column.VALUE not in types:
        raise WrongSchema("there is no column value: make one, as in selectExpr('to_json(struct(*)) as value')")
    if topic is None and Column.TOPIC not in types:
        raise WrongOption("the topic is missing: set the option topic, or add a column topic")


def _producer(options: Options) -> dict[str, Setting]:
    chosen = {
        "client.id": options.text("clientId"),
        "request.timeout.ms": options.duration_ms("requestTimeoutMs"),
        "delivery.timeout.ms": options.duration_ms("deliveryTimeoutMs"),
        "linger.ms": options.duration_ms("lingerMs"),
        "batch.size": options.number("batchBytes"),
        "message.max.bytes": options.number("requestBytesMax", 1000),
        "compression.type": options.choice("compression", SinkCompression.NONE).value,
    }
    return {
        "bootstrap.servers": ",".join(map(str, bootstrap(options))),
        "client.id": "cordwood-spark",
        "acks": "all",
        "enable.idempotence": True,
        # The Java client's partitioner, so that a key is in the same partition for all producers.
        "partitioner": "murmur2_random",
        **{name: value for name, value in chosen.items() if value is not None},
    }
