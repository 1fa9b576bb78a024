"""Topic configs: Kafka's keys, each with its type, documentation and the broker settings that give its default."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from cordwood.cluster.config.rows import BrokerConfig, ConfigRow, Source, documented, first_valid, set_value
from cordwood.cluster.config.setting import HOUR_MS, MINUTE_MS
from cordwood.cluster.config.settings import SETTINGS, Settings
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.config_values import LONG_MAX, Value, ValueType, boolean, text_of, throttled_replicas
from cordwood.storage.config import FlushPolicy, LogConfig

INDEX_INTERVAL_BYTES_MAX = 256 << 10
DELETE_DELAY = "file.delete.delay.ms"
ARCHIVED = "remote.storage.enable"
DEAD_LETTERS = "errors.deadletterqueue.group.enable"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_RETENTIONS = (("local.retention.ms", "retention.ms"), ("local.retention.bytes", "retention.bytes"))
_ARCHIVE_KEYS = {ARCHIVED, *(key for pair in _RETENTIONS for key in pair)}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic config: a row of the table.

    `broker_keys` are the settings that give the default; the first that is set has precedence. `times` has the factor
    of each.
    """

    type: ValueType
    documentation: str
    broker_keys: tuple[str, ...] = ()
    times: tuple[int, ...] = (1, 1, 1)
    default: Value = None
    """The default of a config without broker keys."""


def _of(*broker_keys: str, documentation: str = "", times: tuple[int, ...] = (1, 1, 1)) -> TopicConfig:
    """Return the config with these broker keys. Its type is the first key's, and so is its documentation by default."""
    setting = SETTINGS[broker_keys[0]]
    return TopicConfig(setting.type, documentation or setting.documentation, broker_keys, times)


def _throttled(role: str) -> TopicConfig:
    documentation = (
        f"The replicas, PARTITION:BROKER each, that {role}.replication.throttled.rate of the {role} counts for; * for"
        " all. Replicas that no reassignment adds are never throttled. Unset: all that are added."
    )
    return TopicConfig(throttled_replicas(), documentation, default=())


TOPIC_CONFIGS: Mapping[str, TopicConfig] = {
    "cleanup.policy": _of(
        "log.cleanup.policy",
        documentation=(
            "What happens to old records. delete: segments are deleted by age and size. compact: only the"
            " newest value of each key is kept. Empty: all records are kept."
        ),
    ),
    "compression.type": _of("compression.type"),
    "delete.retention.ms": _of(
        "log.cleaner.delete.retention.ms", documentation="How long a tombstone is kept in a compacted topic."
    ),
    DEAD_LETTERS: TopicConfig(
        boolean(), "Whether the topic may be the dead-letter queue of a share group (KIP-1191).", default=False
    ),
    DELETE_DELAY: _of(
        "log.segment.delete.delay.ms",
        documentation="How long the files of a deleted segment or topic are kept for readers that are using them.",
    ),
    "flush.messages": _of("log.flush.interval.messages"),
    "flush.ms": _of("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "flush.policy": _of(
        "flush.policy",
        documentation=(
            "When a record is acknowledged. group: after fdatasync, which is one for all records that arrived"
            " meanwhile. os: once it is in the operating system's memory, as in Kafka; a power cut can lose it."
        ),
    ),
    FOLLOWER_REPLICAS: _throttled("follower"),
    "index.interval.bytes": _of(
        "log.index.interval.bytes",
        documentation="Log bytes between two entries of the offset index; at most 256 KiB.",
    ),
    LEADER_REPLICAS: _throttled("leader"),
    "local.retention.bytes": _of("log.local.retention.bytes"),
    "local.retention.ms": _of("log.local.retention.ms"),
    "max.compaction.lag.ms": _of(
        "log.cleaner.max.compaction.lag.ms",
        documentation="The age at which a record of a compacted topic must be compacted.",
    ),
    "max.message.bytes": _of("message.max.bytes"),
    "message.timestamp.after.max.ms": _of("log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _of("log.message.timestamp.before.max.ms"),
    "message.timestamp.type": _of("log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": _of(
        "log.cleaner.min.cleanable.ratio",
        documentation="The ratio of superseded bytes at which a compacted topic is compacted.",
    ),
    "min.compaction.lag.ms": _of("log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _of("min.insync.replicas"),
    "preallocate": _of("log.preallocate"),
    ARCHIVED: _of(ARCHIVED),
    "retention.bytes": _of("log.retention.bytes"),
    "retention.ms": _of(
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        documentation="The age at which records are deleted, by segment; -1 for no limit.",
        times=(1, MINUTE_MS, HOUR_MS),
    ),
    "segment.bytes": _of("log.segment.bytes"),
    "segment.index.bytes": _of("log.index.size.max.bytes"),
    "segment.jitter.ms": _of(
        "log.roll.jitter.ms",
        "log.roll.jitter.hours",
        documentation="The largest random time by which segments are rolled earlier than segment.ms.",
        times=(1, HOUR_MS),
    ),
    "segment.ms": _of(
        "log.roll.ms",
        "log.roll.hours",
        documentation="The age at which a new segment is rolled.",
        times=(1, HOUR_MS),
    ),
    "unclean.leader.election.enable": _of("unclean.leader.election.enable"),
}
"""The table, by key."""


def validate_changes(own: Mapping[str, str], changes: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Check changes of a topic that has `own` configs; None removes a config. Raises Refused as `validate` does."""
    validate({key: text for key, text in changes.items() if text is not None}, broker)
    if {"min.compaction.lag.ms", "max.compaction.lag.ms"} & changes.keys():
        changed = {**own, **changes}
        _check_compaction_lags({key: text for key, text in changed.items() if text is not None}, broker)
    if _ARCHIVE_KEYS & changes.keys():
        changed = {**own, **changes}
        _check_local_retention({key: text for key, text in changed.items() if text is not None}, broker)


def validate(configs: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Check the configs of a topic. Raises Refused(INVALID_CONFIG) with a sentence."""
    for key, text in configs.items():
        row = TOPIC_CONFIGS.get(key)
        if row is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown topic config name: {key}")
        if text is None:
            raise Refused(ErrorCode.invalid_config, f"Null value not supported for topic configs: {key}")
        try:
            row.type.parse(text)
        except ValueError as error:
            message = f"Invalid value {text} for configuration {key}: it must be {error}."
            raise Refused(ErrorCode.invalid_config, message) from None
        if key == ARCHIVED:
            check_has_archive(row.type.parse(text), broker)
    known = {key: text for key, text in configs.items() if text is not None}
    if "min.compaction.lag.ms" in configs or "max.compaction.lag.ms" in configs:
        _check_compaction_lags(known, broker)
    if _ARCHIVE_KEYS & configs.keys():
        _check_local_retention(known, broker)


def check_has_archive(is_archived: Value, broker: BrokerConfig) -> None:
    """Raise Refused(INVALID_CONFIG) if a topic would be archived without an archive."""
    if is_archived is True and not broker.settings.archive_url:
        message = f"{ARCHIVED} must not be true, because the brokers have no archive: set archive.url on each of them."
        raise Refused(ErrorCode.invalid_config, message)


def ignored(configs: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each config of a topic that has no effect: set by a newer version, or by mistake."""
    for key, text in configs.items():
        row = TOPIC_CONFIGS.get(key)
        if row is None:
            yield f"{key} is not known"
        elif (mistake := set_value(key, text, Source.DYNAMIC_TOPIC, row.type).mistake) is not None:
            yield f"{key} is {text!r}, and must be {mistake}"


def value_of(key: str, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the effective value of a topic's config: its own, or the broker's. Raises KeyError for an unknown key.

    An own value that is invalid for the key is not used: see `ignored`.
    """
    row = TOPIC_CONFIGS[key]
    if key in configs and (own := row.type.read(configs[key])) is not None:
        return own
    if not row.broker_keys:
        return row.default
    broker_key, value = broker.found(row.broker_keys)
    return _scaled(value, row.times[row.broker_keys.index(broker_key)])


def describe(configs: Mapping[str, str], broker: BrokerConfig, keys: Iterable[str] = TOPIC_CONFIGS) -> list[ConfigRow]:
    """Return the rows of a topic with these own configs: all rows, or those of `keys`."""
    return [_row(key, TOPIC_CONFIGS[key], configs, broker) for key in keys]


def log_config(configs: Mapping[str, str], broker: BrokerConfig | Settings) -> LogConfig:
    """Return the log configuration of a topic with these configs."""
    if isinstance(broker, Settings):
        broker = BrokerConfig(broker)

    def number(key: str) -> int:
        value = value_of(key, configs, broker)
        assert isinstance(value, int), f"{key} is a number"
        return value

    policies = value_of("cleanup.policy", configs, broker)
    assert isinstance(policies, tuple), "cleanup.policy is a list"
    has_own_delay = _row(DELETE_DELAY, TOPIC_CONFIGS[DELETE_DELAY], configs, broker).source < Source.STATIC_BROKER
    producer_expiry_ms = int(broker.number("producer.id.expiration.ms"))
    dirty_ratio = value_of("min.cleanable.dirty.ratio", configs, broker)
    assert isinstance(dirty_ratio, float), "min.cleanable.dirty.ratio is a number"
    is_compacted = "compact" in policies
    # As in Kafka: a record is not compacted before its segment is sealed.
    segment_ms = min(number("segment.ms"), number("max.compaction.lag.ms") if is_compacted else LONG_MAX)
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=segment_ms,
        # A read checks the whole interval between two index entries to prove any batch in it.
        index_interval_bytes=min(number("index.interval.bytes"), INDEX_INTERVAL_BYTES_MAX),
        index_bytes_max=number("segment.index.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        batch_bytes_max=number("max.message.bytes"),
        flush_policy=FlushPolicy(value_of("flush.policy", configs, broker)),
        producer_expiry_ms=producer_expiry_ms,
        compacted=is_compacted,
        deletable="delete" in policies,
        log_append_time=value_of("message.timestamp.type", configs, broker) == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=dirty_ratio,
        delete_retention_ms=number("delete.retention.ms"),
        delete_delay_ms=number(DELETE_DELAY) if has_own_delay else None,
        is_archived=value_of(ARCHIVED, configs, broker) is True,
        local_retention_ms=number("local.retention.ms"),
        local_retention_bytes=number("local.retention.bytes"),
    )


def _check_compaction_lags(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    least = value_of("min.compaction.lag.ms", configs, broker)
    most = value_of("max.compaction.lag.ms", configs, broker)
    assert isinstance(least, int), "min.compaction.lag.ms is a number"
    assert isinstance(most, int), "max.compaction.lag.ms is a number"
    if least > most:
        message = f"min.compaction.lag.ms ({least}) must not be more than max.compaction.lag.ms ({most})."
        raise Refused(ErrorCode.invalid_config, message)


def _check_local_retention(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    if value_of(ARCHIVED, configs, broker) is not True:
        return
    for local_key, key in _RETENTIONS:
        local, whole = value_of(local_key, configs, broker), value_of(key, configs, broker)
        assert isinstance(local, int), f"{local_key} is a number"
        assert isinstance(whole, int), f"{key} is a number"
        if whole >= 0 and (local == -1 or local > whole):
            message = f"{local_key} ({local}) must not be more than {key} ({whole})."
            raise Refused(ErrorCode.invalid_config, message)


def _row(key: str, row: TopicConfig, configs: Mapping[str, str], broker: BrokerConfig) -> ConfigRow:
    own = (set_value(key, configs[key], Source.DYNAMIC_TOPIC, row.type),) if key in configs else ()
    synonyms = own + tuple(broker.synonyms(row.broker_keys))
    counts = first_valid(synonyms)
    return ConfigRow(
        key,
        text_of(value_of(key, configs, broker)),
        Source.DEFAULT if counts is None else counts.source,
        row.type.kind,
        False,
        documented(row.documentation, synonyms),
        synonyms,
    )


def _scaled(value: Value, times: int) -> Value:
    """Convert hours or minutes to milliseconds; -1 means no limit in any unit."""
    if times == 1 or not isinstance(value, int) or value < 0:
        return value
    return value * times
