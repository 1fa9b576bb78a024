"""Options of the reader, named as in Spark's Kafka source: subscription, start and end positions, limits, client."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cordwood.columnar.ranges import EARLIEST, LATEST, Isolation
from cordwood.spark.admission import BatchLimits
from cordwood.spark.archive import StoreSettings
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.errors import UserError, WrongOption
from cordwood.spark.offsets import from_json
from cordwood.spark.options import REFUSED_SECURITY, SECURITY, Options, bootstrap, security
from cordwood.spark.positions import AT_EARLIEST, AT_LATEST, OffsetPosition, Position, Positions, TimestampPosition
from cordwood.spark.subscription import ByName, ByPartition, ByPattern, Subscription
from cordwood.storage.types import TopicPartition


class ReadMode(StrEnum):
    """The read mode: batch or streaming."""

    BATCH = "spark.read"
    STREAM = "spark.readStream"


class NoRecordSoLate(StrEnum):
    """The meaning of a start time that is later than all records of a partition."""

    ERROR = "error"
    LATEST = "latest"


class IsolationName(StrEnum):
    """Kafka's names of the isolation levels."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


WHICH = ("subscribe", "subscribePattern", "assign")
STARTINGS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
FOR_BATCHES = (*ENDINGS, "cut", "filterPushdown")
ARCHIVE = "archive."
"""The beginning of options that are settings of the archive's object store, by obstore's keys."""
FOR_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

KNOWN: Mapping[str, tuple[str, ...]] = {
    "bootstrapServers": ("kafka.bootstrap.servers",),
    **dict.fromkeys(WHICH, ()),
    "startingTimestamp": (),
    "startingOffsetsByTimestamp": (),
    "startingOffsets": (),
    **dict.fromkeys(ENDINGS, ()),
    "startingOffsetsByTimestampStrategy": (),
    "cut": (),
    "isolation": ("kafka.isolation.level",),
    "includeHeaders": (),
    "failOnDataLoss": (),
    "failOnCorruptRecords": (),
    "minPartitions": (),
    "maxRecordsPerPartition": (),
    "filterPushdown": (),
    "maxOffsetsPerTrigger": (),
    "minOffsetsPerTrigger": (),
    "maxTriggerDelay": (),
    "requestTimeoutMs": ("kafka.request.timeout.ms",),
    "retryTimeoutMs": ("kafka.default.api.timeout.ms",),
    "fetchBytes": ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes"),
    "clientId": ("kafka.client.id",),
    "clientRack": ("kafka.client.rack",),
    "archive.url": (),
    "archive.credentials.file": (),
    "readMetricsPath": (),
    **SECURITY,
}
"""The options with their other spellings."""

_NO_GROUP = "a reader has no consumer group, and its offsets are in Spark's checkpoint: leave the option out"
_BYTES = "keys and values are binary: convert them in the query, as in cast(value as string)"
_PATIENCE = "use retryTimeoutMs for the time of retries"

REFUSED: Mapping[str, str] = {
    **REFUSED_SECURITY,
    "path": "there is no path to load: name the topics with subscribe",
    "topic": "use subscribe, subscribePattern or assign to read; topic is for writing",
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "kafka.enable.auto.commit": _NO_GROUP,
    "kafka.auto.offset.reset": "use startingOffsets for the start of a reader",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafkaConsumer.pollTimeoutMs": _PATIENCE,
    "fetchOffset.numRetries": _PATIENCE,
    "fetchOffset.retryIntervalMs": _PATIENCE,
}
"""Unsupported options, with the alternative."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader, checked as far as possible without a cluster."""

    client: ClientSettings
    subscription: Subscription
    starting: Positions
    ending: Positions
    cut: str | None
    no_record_so_late: NoRecordSoLate
    include_headers: bool
    fail_on_data_loss: bool
    fail_on_corrupt_records: bool
    filter_pushdown: bool
    tasks_min: int | None
    records_per_task_max: int | None
    limits: BatchLimits
    archive: StoreSettings | None
    metrics_path: str | None


def read_options(given: Mapping[str, str], mode: ReadMode | None = None) -> ReadOptions:
    """Parse the user's options. Raises WrongOption with a message.

    `mode` is None while it is unknown; then an option for batches implies Mode.BATCH, and none Mode.STREAM.
    """
    options = Options(given, KNOWN, REFUSED, ARCHIVE)
    if mode is None:
        mode = ReadMode.BATCH if options.given(FOR_BATCHES) else ReadMode.STREAM
    _refuse_what_is_for_the_other(options, mode)
    starting = _starting(options, mode)
    ending = _positions(options, "ending", {"latest": AT_LATEST}, AT_LATEST)
    _check_order(starting, ending)
    return ReadOptions(
        client=client_settings(options),
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        cut=_cut(options),
        no_record_so_late=options.choice("startingOffsetsByTimestampStrategy", NoRecordSoLate.ERROR),
        include_headers=options.flag("includeHeaders", False),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        fail_on_corrupt_records=options.flag("failOnCorruptRecords", True),
        filter_pushdown=options.flag("filterPushdown", False),
        tasks_min=options.number("minPartitions"),
        records_per_task_max=options.number("maxRecordsPerPartition"),
        limits=_limits(options),
        archive=_archive(options),
        metrics_path=options.text("readMetricsPath"),
    )


def client_settings(options: Options) -> ClientSettings:
    """Return the settings of the Kafka client. Raises WrongOption."""
    isolation = options.choice("isolation", IsolationName.READ_COMMITTED)
    secured, delegates = security(options)
    others = {
        "security": secured,
        "delegates": delegates,
        "client_id": options.text("clientId"),
        "rack": options.text("clientRack"),
        "request_timeout_ms": options.duration_ms("requestTimeoutMs"),
        "retry_timeout_ms": options.duration_ms("retryTimeoutMs"),
        "fetch_bytes_max": options.number("fetchBytes", 1024),
    }
    chosen = {name: value for name, value in others.items() if value is not None}
    return ClientSettings(bootstrap(options), Isolation[isolation.name], **chosen)  # type: ignore[arg-type]


def _cut(options: Options) -> str | None:
    cut, positions = options.text("cut"), options.given((*STARTINGS, *ENDINGS))
    if cut is not None and positions:
        raise WrongOption(f"a cut has its own start and end: leave out {positions[0]}")
    return cut


def _archive(options: Options) -> StoreSettings | None:
    url, store = options.text("archive.url"), options.group(ARCHIVE)
    credentials_file = options.text("archive.credentials.file")
    if url is None and (store or credentials_file):
        raise WrongOption("options that begin with archive. need archive.url, as in archive.url of the brokers")
    return None if url is None else StoreSettings.of(url, credentials_file, store)


def _refuse_what_is_for_the_other(options: Options, mode: ReadMode) -> None:
    wrong = options.given(FOR_BATCHES if mode is ReadMode.STREAM else FOR_STREAMS)
    if wrong:
        where = ReadMode.BATCH if mode is ReadMode.STREAM else ReadMode.STREAM
        raise WrongOption(f"{wrong[0]} is for {where}, and this is {mode}: leave it out")


def _subscription(options: Options) -> Subscription:
    given = options.given(WHICH)
    if not given and options.given(["cut"]):
        return ByPattern(".*")
    if len(given) != 1:
        said = f"{' and '.join(given)} are" if given else "none is"
        raise WrongOption(f"{said} given: select what to read with one of {', '.join(WHICH)}")
    [name] = given
    text = options.text(name) or ""
    if name == "assign":
        return _assigned(options)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise WrongOption(f"subscribePattern is {text!r}, which is not a regular expression: {error}") from None
        return ByPattern(text)
    topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise WrongOption("subscribe names no topic: give one or more, separated by commas")
    return ByName(topics)


def _assigned(options: Options) -> ByPartition:
    example = '{"topic": [0, 1]}'
    grouped = options.json("assign", example)
    wrong = WrongOption(f"assign is {options.text('assign')!r}: write the partitions of each topic as {example}")
    if not isinstance(grouped, dict) or not grouped:
        raise wrong
    for numbers in grouped.values():
        if not isinstance(numbers, list) or not numbers or not all(type(each) is int and each >= 0 for each in numbers):
            raise wrong
    return ByPartition(frozenset(TopicPartition(topic, each) for topic, numbers in grouped.items() for each in numbers))


def _starting(options: Options, mode: ReadMode) -> Positions:
    # In a batch read, "latest" would be an empty range. In a stream it means the records from now on.
    words = {"earliest": AT_EARLIEST} if mode is ReadMode.BATCH else {"earliest": AT_EARLIEST, "latest": AT_LATEST}
    default = AT_EARLIEST if mode is ReadMode.BATCH else AT_LATEST
    return _positions(options, "starting", words, default)


def _check_order(starting: Positions, ending: Positions) -> None:
    for place, start in starting.named.items():
        end = ending.named.get(place)
        if isinstance(start, OffsetPosition) and isinstance(end, OffsetPosition) and start.offset > end.offset:
            raise WrongOption(
                f"{starting.option} has {start.offset} for {place}, which is after {end.offset} of {ending.option}"
            )


def _positions(options: Options, end: str, words: Mapping[str, Position], default: Position) -> Positions:
    """Return positions from the first option given: timestamp, offsets by timestamp, offsets.

    In the JSON of offsets, -2 and -1 stand for earliest and latest, as far as `words` has them. Raises WrongOption.
    """
    at, by_time, by_offset = f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets"
    timestamp_ms = options.number(at, 0)
    if timestamp_ms is not None:
        return Positions(at, TimestampPosition(timestamp_ms))
    if options.given([by_time]):
        return _named(options, by_time, TimestampPosition, {})
    text = options.text(by_offset)
    if text is None:
        return Positions(by_offset, default)
    if text.lower() in words:
        return Positions(by_offset, words[text.lower()])
    if text.lower() in ("earliest", "latest"):
        raise WrongOption(
            f"{by_offset} cannot be {text} here: it can be {' or '.join(words)}, or an offset for each partition"
        )
    special = {"earliest": EARLIEST, "latest": LATEST}
    return _named(options, by_offset, OffsetPosition, {special[word]: position for word, position in words.items()})


def _named(options: Options, name: str, kind: Callable[[int], Position], special: Mapping[int, Position]) -> Positions:
    grouped = options.json(name, '{"topic": {"0": 23, "1": 42}}')
    try:
        numbers = from_json(grouped)
    except UserError as mistake:
        raise WrongOption(f"{name}: {mistake}") from None
    for place, number in numbers.items():
        if number < 0 and number not in special:
            raise WrongOption(f"{name} has {number} for {place}: it must be 0 or more{_meanings(special)}")
    return Positions(name, None, {place: special.get(number) or kind(number) for place, number in numbers.items()})


def _meanings(special: Mapping[int, Position]) -> str:
    words = {EARLIEST: "-2 for the earliest", LATEST: "-1 for the latest"}
    return "".join(f", or {words[number]}" for number in sorted(special))


def _limits(options: Options) -> BatchLimits:
    delay_ms = options.duration_ms("maxTriggerDelay")
    limits = BatchLimits(
        options.number("maxOffsetsPerTrigger"),
        options.number("minOffsetsPerTrigger"),
        BatchLimits().delay_ms_max if delay_ms is None else delay_ms,
    )
    if delay_ms is not None and limits.records_min is None:
        raise WrongOption("maxTriggerDelay limits the wait for minOffsetsPerTrigger: give both or neither")
    if limits.records_max and limits.records_min and limits.records_min > limits.records_max:
        raise WrongOption(
            f"minOffsetsPerTrigger is {limits.records_min} and maxOffsetsPerTrigger is {limits.records_max}: the"
            " minimum must not be larger than the maximum"
        )
    return limits
