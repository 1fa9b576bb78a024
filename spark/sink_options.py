"""Options of the sink, named as in Spark's Kafka sink, and validation of the written columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cordwood.columnar.columns import Column
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.errors import WrongOption, WrongSchema, nearest
from cordwood.spark.exactly_once.writes import ExactlyOnceOptions, WriteId
from cordwood.spark.options import REFUSED_SECURITY, SECURITY, Options, bootstrap, security

Setting = str | int | bool


class WriteMode(StrEnum):
    """The write mode: batch or streaming."""

    BATCH = "df.write"
    STREAM = "df.writeStream"


class DeliveryGuarantee(StrEnum):
    """How often a record is written if Spark runs a task again."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class SinkCompression(StrEnum):
    """Kafka's names of the compression types."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


NAMES = ("transactionalId", "transactionVersion")
FOR_EXACTLY_ONCE = (*NAMES, "transactionTimeoutMs", "retryTimeoutMs", "commitsTopic", "failOnMissingCommit")
TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""The largest timeout that brokers allow by default."""
TRANSACTION_TIMEOUT_MS_MIN = 10_000

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
    **SECURITY,
    "deliveryGuarantee": (),
    **dict.fromkeys(NAMES, ()),
    "transactionTimeoutMs": ("kafka.transaction.timeout.ms",),
    "retryTimeoutMs": (),
    "commitsTopic": (),
    "failOnMissingCommit": (),
}
"""The options with their other spellings. Spark itself passes a stream's checkpointLocation on."""

REFUSED: Mapping[str, str] = {
    **REFUSED_SECURITY,
    "path": "a log has no path: name the topic with the option topic, or in a column named topic",
    "kafka.transactional.id": "each task has its own transactional id: set deliveryGuarantee to exactly-once",
    "exactlyOnce": "set deliveryGuarantee to exactly-once",
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
    """The options of a sink. If `topic` is None, each row has a topic.

    `producer` is librdkafka's configuration without that of TLS and SASL, which `client` has. `exactly_once` is None
    for at-least-once delivery.
    """

    topic: str | None
    producer: Mapping[str, Setting]
    client: ClientSettings
    exactly_once: ExactlyOnceOptions | None = None


def sink_options(
    given: Mapping[str, str],
    fields: Sequence[tuple[str, str]],
    *,
    overwrite: bool,
    mode: WriteMode = WriteMode.BATCH,
) -> SinkOptions:
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
    client = _client(options)
    return SinkOptions(topic, _producer(options), client, _exactly_once(options, mode, client))


def _exactly_once(options: Options, mode: WriteMode, client: ClientSettings) -> ExactlyOnceOptions | None:
    guarantee = options.choice("deliveryGuarantee", DeliveryGuarantee.AT_LEAST_ONCE)
    if guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
        for name in options.given(FOR_EXACTLY_ONCE):
            raise WrongOption(f"{name} is for exactly-once delivery: set deliveryGuarantee to exactly-once")
        return None
    timeout_ms = options.duration_ms("transactionTimeoutMs")
    timeout_ms = TRANSACTION_TIMEOUT_MS if timeout_ms is None else timeout_ms
    if timeout_ms < TRANSACTION_TIMEOUT_MS_MIN:
        raise WrongOption(f"transactionTimeoutMs is {timeout_ms}: it must be {TRANSACTION_TIMEOUT_MS_MIN} ms or more")
    delivery_ms = options.duration_ms("deliveryTimeoutMs")
    if delivery_ms is not None and delivery_ms > timeout_ms:
        raise WrongOption(
            f"deliveryTimeoutMs is {delivery_ms} and transactionTimeoutMs is {timeout_ms}: a record must be delivered"
            " within its transaction"
        )
    return ExactlyOnceOptions(
        client=client,
        write=_write_id(options, mode),
        timeout_ms=timeout_ms,
        commits_topic=options.text("commitsTopic") or "cordwood-spark-commits",
        fail_on_missing_commit=options.flag("failOnMissingCommit", True),
    )


def _write_id(options: Options, mode: WriteMode) -> WriteId | None:
    """Return the name and version of a batch write; None for a stream."""
    given = options.given(NAMES)
    if mode is WriteMode.STREAM:
        if given:
            raise WrongOption(f"{given[0]} is for {WriteMode.BATCH}: a stream is named by its checkpoint")
        return None
    name, version = options.text("transactionalId"), options.number("transactionVersion", 0)
    if not name or version is None:
        raise WrongOption(
            "an exactly-once write needs transactionalId, its name, and transactionVersion, a number that is larger for"
            " each next write of this name: a version that is committed is not written again"
        )
    return WriteId(name, version)


def _client(options: Options) -> ClientSettings:
    secured, delegates = security(options)
    others = {
        "security": secured,
        "delegates": delegates,
        "client_id": options.text("clientId"),
        "request_timeout_ms": options.duration_ms("requestTimeoutMs"),
        "retry_timeout_ms": options.duration_ms("retryTimeoutMs"),
    }
    chosen = {name: value for name, value in others.items() if value is not None}
    return ClientSettings(bootstrap(options), **chosen)  # type: ignore[arg-type]


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
