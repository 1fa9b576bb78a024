"""Group configs: the configs of Kafka's resource type GROUP (KIP-848, KIP-932, KIP-1240, KIP-1191)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from cordwood.cluster.config.offset_reset import LATEST, lookback_ms
from cordwood.cluster.config.rows import (
    BrokerConfig,
    ConfigRow,
    Source,
    Synonym,
    broker_config,
    documented,
    first_valid,
)
from cordwood.cluster.config.settings import SETTINGS, Settings
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.config_values import Value, ValueType, boolean, integer, string, text_of
from cordwood.cluster.metadata.image import EMPTY, Image

CONSUMER_SESSION, CONSUMER_HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SHARE_SESSION, SHARE_HEARTBEAT = "share.session.timeout.ms", "share.heartbeat.interval.ms"
AUTO_OFFSET_RESET, ISOLATION_LEVEL = "share.auto.offset.reset", "share.isolation.level"
RECORD_LOCK, DELIVERY_COUNT_LIMIT = "share.record.lock.duration.ms", "share.delivery.count.limit"
RECORD_LOCKS_MAX, RENEW = "share.partition.max.record.locks", "share.renew.acknowledge.enable"
DEAD_LETTER_TOPIC, DEAD_LETTER_COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

_CACHED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class GroupConfigRow:
    """One config of groups: a row of the table. `broker_key` is the setting that gives its default."""

    type: ValueType
    documentation: str
    broker_key: str = ""
    default: Value = None
    """The default of a config without a broker key."""

    @property
    def bounds(self) -> tuple[str, str] | None:
        """The settings that bound its values, or None."""
        if not self.broker_key:
            return None
        kind, _, rest = self.broker_key.removeprefix("group.").partition(".")
        return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def _bounded(broker_key: str, least: int, documentation: str) -> GroupConfigRow:
    return GroupConfigRow(integer(least), documentation, broker_key)


GROUP_CONFIGS: Mapping[str, GroupConfigRow] = {
    CONSUMER_HEARTBEAT: _bounded(
        "group.consumer.heartbeat.interval.ms", 1, "The interval at which members of a consumer group send heartbeats."
    ),
    CONSUMER_SESSION: _bounded(
        "group.consumer.session.timeout.ms",
        1,
        "How long a member of a consumer group may be silent before it is removed.",
    ),
    DEAD_LETTER_COPY: GroupConfigRow(
        boolean(), "Whether the record itself is copied to the dead-letter topic, or only its place.", default=False
    ),
    DEAD_LETTER_TOPIC: GroupConfigRow(
        string(),
        "The topic for records that a share group rejects or has been given too often; empty for none.",
        default="",
    ),
    AUTO_OFFSET_RESET: GroupConfigRow(
        string(),
        "Where a share group begins in a partition without a state: earliest, latest, or by_duration: with an ISO 8601"
        " duration before now.",
        default=LATEST,
    ),
    DELIVERY_COUNT_LIMIT: _bounded(
        "group.share.delivery.count.limit", 1, "How often a record is delivered before it is archived."
    ),
    SHARE_HEARTBEAT: _bounded(
        "group.share.heartbeat.interval.ms", 1, "The interval at which members of a share group send heartbeats."
    ),
    ISOLATION_LEVEL: GroupConfigRow(
        string(READ_COMMITTED, READ_UNCOMMITTED),
        "Whether a share group gets only committed records of transactions, or all of them.",
        default=READ_UNCOMMITTED,
    ),
    RECORD_LOCKS_MAX: _bounded(
        "group.share.partition.max.record.locks", 1, "How many records of a partition the group may hold at a time."
    ),
    RECORD_LOCK: _bounded(
        "group.share.record.lock.duration.ms", 1_000, "How long a member holds a record that it has fetched."
    ),
    RENEW: GroupConfigRow(boolean(), "Whether members may renew the lock of a record (KIP-1222).", default=True),
    SHARE_SESSION: _bounded(
        "group.share.session.timeout.ms", 1, "How long a member of a share group may be silent before it is removed."
    ),
}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The effective configs of a consumer group of the new protocol."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The effective configs of a share group. `dead_letter_topic` is empty for none."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    auto_offset_reset: str = LATEST
    is_read_committed: bool = False
    record_lock_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    renew_enable: bool = True
    dead_letter_topic: str = ""
    dead_letter_copy: bool = False


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The effective configs of a group, which may become of either kind."""

    consumer: ConsumerConfig = ConsumerConfig()
    share: ShareConfig = ShareConfig()


class GroupConfigs:
    """The effective configs by group id, as of the newest metadata. A change takes effect at the next call."""

    def __init__(self, settings: Settings, image: Callable[[], Image]) -> None:
        self._settings, self._image = settings, image
        self._of_brokers: object = None
        self._known: dict[str, tuple[Mapping[str, str], GroupConfig]] = {}

    def __call__(self, group_id: str) -> GroupConfig:
        image = self._image()
        if self._of_brokers is not image.broker_configs or len(self._known) > _CACHED_MAX:
            self._of_brokers, self._known = image.broker_configs, {}
        own = image.group_configs.get(group_id, EMPTY)
        # All groups without configs share one entry: their ids are as many as clients invent.
        name = group_id if own else ""
        known = self._known.get(name)
        if known is None or known[0] is not own:
            known = self._known[name] = own, group_config(own, broker_config(self._settings, image))
        return known[1]


def group_config(configs: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """Return the effective configs of a group with these configs."""

    def number(key: str) -> int:
        value = value_of(key, configs, broker)
        assert isinstance(value, int), f"{key} is a number"
        return value

    def text(key: str) -> str:
        value = value_of(key, configs, broker)
        assert isinstance(value, str), f"{key} is a text"
        return value

    return GroupConfig(
        ConsumerConfig(number(CONSUMER_SESSION), number(CONSUMER_HEARTBEAT)),
        ShareConfig(
            session_timeout_ms=number(SHARE_SESSION),
            heartbeat_interval_ms=number(SHARE_HEARTBEAT),
            auto_offset_reset=text(AUTO_OFFSET_RESET),
            is_read_committed=text(ISOLATION_LEVEL) == READ_COMMITTED,
            record_lock_ms=number(RECORD_LOCK),
            delivery_count_limit=number(DELIVERY_COUNT_LIMIT),
            partition_max_record_locks=number(RECORD_LOCKS_MAX),
            renew_enable=value_of(RENEW, configs, broker) is True,
            dead_letter_topic=text(DEAD_LETTER_TOPIC),
            dead_letter_copy=value_of(DEAD_LETTER_COPY, configs, broker) is True,
        ),
    )


def value_of(key: str, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the effective value of a config: the group's own within the brokers' bounds, or the default (KIP-1240).

    An own value that is invalid is not used: another version or a faulty broker may have set it.
    """
    row = GROUP_CONFIGS[key]
    text = configs.get(key)
    own = None if text is None or _mistake(key, text) is not None else row.type.parse(text)
    if own is None:
        return broker.found((row.broker_key,))[1] if row.broker_key else row.default
    if row.bounds is None:
        return own
    least, most = _limits(row.bounds, broker)
    assert isinstance(own, int), f"{key} is a number"
    return min(max(own, least), most)


def check(group_id: str, own: Mapping[str, str], changes: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Check changes of the configs of a group. Raises Refused."""
    if not group_id:
        raise Refused(ErrorCode.invalid_request, "Default group resources are not allowed.")
    for key, text in changes.items():
        if text is not None:
            _check_value(key, text, broker)
    after = {key: text for key, text in {**own, **changes}.items() if text is not None}
    for session, heartbeat in ((CONSUMER_SESSION, CONSUMER_HEARTBEAT), (SHARE_SESSION, SHARE_HEARTBEAT)):
        if {session, heartbeat} & changes.keys():
            timeout, interval = value_of(session, after, broker), value_of(heartbeat, after, broker)
            assert isinstance(timeout, int), f"{session} is a number"
            assert isinstance(interval, int), f"{heartbeat} is a number"
            if timeout <= interval:
                raise Refused(ErrorCode.invalid_config, f"{session} must be greater than {heartbeat}")


def describe(configs: Mapping[str, str], broker: BrokerConfig) -> list[ConfigRow]:
    """Return a row for each config of a group."""
    return [_row(key, row, configs, broker) for key, row in sorted(GROUP_CONFIGS.items())]


def _row(key: str, row: GroupConfigRow, configs: Mapping[str, str], broker: BrokerConfig) -> ConfigRow:
    own = (Synonym(key, configs[key], Source.DYNAMIC_GROUP, _mistake(key, configs[key])),) if key in configs else ()
    if row.broker_key:
        synonyms = own + tuple(broker.synonyms((row.broker_key,)))
    else:
        synonyms = (*own, Synonym(key, text_of(row.default), Source.DEFAULT))
    counts = first_valid(synonyms)
    assert counts is not None, "every group config has a default"
    value = text_of(value_of(key, configs, broker))
    return ConfigRow(key, value, counts.source, row.type.kind, False, documented(row.documentation, synonyms), synonyms)


def _mistake(key: str, text: str) -> str | None:
    """Return the description of valid values if the text is none of them."""
    try:
        GROUP_CONFIGS[key].type.parse(text)
        if key == AUTO_OFFSET_RESET:
            lookback_ms(text.strip())
    except ValueError as error:
        return str(error)
    return None


def _check_value(key: str, text: str, broker: BrokerConfig) -> None:
    row = GROUP_CONFIGS.get(key)
    if row is None:
        raise Refused(ErrorCode.invalid_config, f"Unknown group config name: {key}")
    if (mistake := _mistake(key, text)) is not None:
        message = f"Invalid value {text} for configuration {key}: it must be {mistake}."
        raise Refused(ErrorCode.invalid_config, message)
    if row.bounds is not None:
        value, (least, most) = row.type.parse(text), _limits(row.bounds, broker)
        assert isinstance(value, int), f"{key} is a number"
        if value < least:
            raise Refused(ErrorCode.invalid_config, f"{key} must be greater than or equal to {row.bounds[0]} ({least})")
        if value > most:
            raise Refused(ErrorCode.invalid_config, f"{key} must be less than or equal to {row.bounds[1]} ({most})")


def _limits(bounds: tuple[str, str], broker: BrokerConfig) -> tuple[int, int]:
    least, most = (broker.found((key,))[1] for key in bounds)
    assert isinstance(least, int), f"{bounds[0]} is a number"
    assert isinstance(most, int), f"{bounds[1]} is a number"
    return least, most


assert all(key in SETTINGS for row in GROUP_CONFIGS.values() for key in row.bounds or ()), "every bound is a setting"
