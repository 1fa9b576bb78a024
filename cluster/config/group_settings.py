"""Settings of consumer groups (KIP-848) and share groups (KIP-932): defaults of their configs, and bounds of these."""

from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.cluster.config.setting import setting
from cordwood.cluster.metadata.config_values import INT_MAX, integer, string, words

_SESSION = "How long a member of a {kind} group may be silent before it is removed. A group can have its own."
_SESSION_MIN = "The shortest session timeout that a {kind} group can have as its config."
_SESSION_MAX = "The longest session timeout that a {kind} group can have as its config."
_HEARTBEAT = "The interval at which members of a {kind} group send heartbeats. A group can have its own."
_HEARTBEAT_MIN = "The shortest heartbeat interval that a {kind} group can have as its config."
_HEARTBEAT_MAX = "The longest heartbeat interval that a {kind} group can have as its config."

_BOUNDED = (
    ("consumer", "session_timeout_ms"),
    ("consumer", "heartbeat_interval_ms"),
    ("share", "session_timeout_ms"),
    ("share", "heartbeat_interval_ms"),
    ("share", "record_lock_duration_ms"),
    ("share", "delivery_count_limit"),
    ("share", "partition_max_record_locks"),
)


@dataclass(frozen=True, kw_only=True)
class GroupDefaults:
    """The groups whose members a broker assigns. A config of a group is the default, or within the bounds."""

    group_consumer_session_timeout_ms: int = setting(45_000, integer(1), _SESSION.format(kind="consumer"))
    group_consumer_min_session_timeout_ms: int = setting(45_000, integer(1), _SESSION_MIN.format(kind="consumer"))
    group_consumer_max_session_timeout_ms: int = setting(60_000, integer(1), _SESSION_MAX.format(kind="consumer"))
    group_consumer_heartbeat_interval_ms: int = setting(5_000, integer(1), _HEARTBEAT.format(kind="consumer"))
    group_consumer_min_heartbeat_interval_ms: int = setting(5_000, integer(1), _HEARTBEAT_MIN.format(kind="consumer"))
    group_consumer_max_heartbeat_interval_ms: int = setting(15_000, integer(1), _HEARTBEAT_MAX.format(kind="consumer"))
    group_consumer_max_size: int = setting(
        INT_MAX, integer(1), "The maximum number of members of a consumer group of the new protocol."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        words("uniform", "range"),
        "The assignors that a member of a consumer group may ask for. The first one is the default.",
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        string("bidirectional", "upgrade", "downgrade", "disabled"),
        "Which groups of consumers members may convert while they run: classic ones to the new protocol (upgrade),"
        " back (downgrade), both (bidirectional), or none (disabled).",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600 * 1000,
        integer(10_000),
        "The interval at which the regular expressions of consumer groups are resolved again, for topics that members"
        " may describe since then.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "share"),
        words("classic", "consumer", "share"),
        "The kinds of groups that members may form. Members of classic groups are always served.",
    )
    group_share_session_timeout_ms: int = setting(45_000, integer(1), _SESSION.format(kind="share"))
    group_share_min_session_timeout_ms: int = setting(45_000, integer(1), _SESSION_MIN.format(kind="share"))
    group_share_max_session_timeout_ms: int = setting(60_000, integer(1), _SESSION_MAX.format(kind="share"))
    group_share_heartbeat_interval_ms: int = setting(5_000, integer(1), _HEARTBEAT.format(kind="share"))
    group_share_min_heartbeat_interval_ms: int = setting(5_000, integer(1), _HEARTBEAT_MIN.format(kind="share"))
    group_share_max_heartbeat_interval_ms: int = setting(15_000, integer(1), _HEARTBEAT_MAX.format(kind="share"))
    group_share_max_size: int = setting(200, integer(1, 1_000), "The maximum number of members of a share group.")
    group_share_record_lock_duration_ms: int = setting(
        30_000,
        integer(1_000, 3_600_000),
        "How long a member of a share group holds a record that it has fetched. A group can have its own duration.",
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000, integer(1_000, 30_000), "The shortest lock of a record that a share group can have as its config."
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000, integer(30_000, 3_600_000), "The longest lock of a record that a share group can have as its config."
    )
    group_share_delivery_count_limit: int = setting(
        5,
        integer(2, 10),
        "How often a record is delivered to a share group before it is archived. A group can have its own limit.",
    )
    group_share_min_delivery_count_limit: int = setting(
        2, integer(2, 5), "The smallest limit of deliveries that a share group can have as its config."
    )
    group_share_max_delivery_count_limit: int = setting(
        10, integer(5, 25), "The largest limit of deliveries that a share group can have as its config."
    )
    group_share_partition_max_record_locks: int = setting(
        2_000,
        integer(100, 10_000),
        "How many records of a partition a share group may hold at a time. A group can have its own limit.",
    )
    group_share_min_partition_max_record_locks: int = setting(
        100, integer(100, 2_000), "The smallest limit of held records that a share group can have as its config."
    )
    group_share_max_partition_max_record_locks: int = setting(
        10_000, integer(2_000, 20_000), "The largest limit of held records that a share group can have as its config."
    )


def group_mistakes(settings: GroupDefaults) -> Iterator[str]:
    """Yield a sentence for each default that is out of its bounds, and for sessions that end between heartbeats."""
    for kind, name in _BOUNDED:
        default = getattr(settings, f"group_{kind}_{name}")
        least, most = (getattr(settings, f"group_{kind}_{bound}_{name}") for bound in ("min", "max"))
        key = name.replace("_", ".")
        if not least <= default <= most:
            yield (
                f"group.{kind}.{key} is {default}, and must be from group.{kind}.min.{key} ({least}) to"
                f" group.{kind}.max.{key} ({most}): change one of the three."
            )
    for kind in ("consumer", "share"):
        if getattr(settings, f"group_{kind}_heartbeat_interval_ms") >= getattr(
            settings, f"group_{kind}_session_timeout_ms"
        ):
            yield (
                f"group.{kind}.heartbeat.interval.ms is not smaller than group.{kind}.session.timeout.ms, so that"
                " members would be removed between two heartbeats: lower the first or raise the second."
            )
