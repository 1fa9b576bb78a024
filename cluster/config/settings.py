"""Broker configuration: a table of every key with its type, default, bounds and documentation.

Keys have Kafka's names where Kafka has them. An attribute is its key with underscores for dots.
`cluster/config/sources.py` reads the values from a file, the environment and the command line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cordwood.cluster.metadata.config_values import (
    INT_MAX,
    LONG_MAX,
    Value,
    ValueType,
    boolean,
    decimal,
    integer,
    long,
    string,
    text_of,
    words,
)

KIB, MIB = 1 << 10, 1 << 20
SECOND_MS = 1000
HOUR_MS = 3600 * SECOND_MS
DAY_MS = 24 * HOUR_MS

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration key: a row of the table."""

    key: str
    type: ValueType
    default: Value
    is_dynamic: bool
    """Whether AlterConfigs may change the key at run time: true of keys that are defaults of topic configs."""
    documentation: str


def _setting(
    default: Value, type_: ValueType, documentation: str, *, dynamic: bool = False, is_secret: bool = False
) -> Any:
    return field(default=default, repr=not is_secret, metadata={"row": (type_, default, dynamic, documentation)})


def _topic_default(default: Value, type_: ValueType, documentation: str) -> Any:
    return _setting(default, type_, documentation, dynamic=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The static configuration of a broker. Times are in milliseconds, sizes in bytes, unless the name has a unit.

    The default is one broker on 127.0.0.1:9092 with its data in ./cordwood-data.
    """

    given: frozenset[str] = frozenset()
    """Keys that were set explicitly."""

    node_id: int = _setting(1, integer(0), "This broker's number, unique in its cluster.")
    cluster_id: str = _setting(
        "", string(), "The name of a new cluster; empty for a random one. An existing cluster must have this name."
    )
    broker_rack: str | None = _setting(None, string(), "Where this broker stands, told to clients (KIP-36).")
    log_dirs: tuple[str, ...] = _setting(
        ("./cordwood-data",), words(), "Directories for the logs, one a disk; the first holds the metadata too."
    )
    log_dir_headroom_bytes: int = _setting(
        32 * MIB, long(0), "With less than this free in a log directory, produce is refused and reads go on."
    )
    metadata_log_max_record_bytes_between_snapshots: int = _setting(
        2 * MIB, long(KIB), "Metadata commands of this many bytes are written before a snapshot replaces them."
    )

    controller_quorum_voters: tuple[str, ...] = _setting(
        (),
        words(),
        "ID@HOST:PORT of each of the 1, 3 or 5 brokers that keep the metadata; empty for a cluster of one broker.",
    )
    controller_quorum_secret: str = _setting(
        "",
        string(),
        "A secret that all brokers of the cluster share; without it nobody joins the metadata quorum. Required where"
        " other machines can reach the voters.",
        is_secret=True,
    )
    controller_quorum_election_timeout_ms: int = _setting(
        2 * SECOND_MS, integer(100), "The longest that voters wait without a leader before one of them stands."
    )
    controller_listener_names: tuple[str, ...] = _setting(
        ("CONTROLLER",), words(), "The entry of `listeners` by which voters are reached; else their own voter address."
    )
    inter_broker_listener_name: str | None = _setting(
        None, string(), "The listener by which brokers reach each other; the first one where none is named."
    )
    broker_heartbeat_interval_ms: int = _setting(200, integer(10), "How often a broker tells that it is alive.")
    broker_session_timeout_ms: int = _setting(
        2 * SECOND_MS,
        integer(100),
        "A broker that is silent for this long is fenced: others lead in its place. One that was killed, sooner.",
    )
    controlled_shutdown_enable: bool = _setting(
        True, boolean(), "Whether a broker that stops has its partitions led by others first."
    )
    controlled_shutdown_max_wait_ms: int = _setting(
        10 * SECOND_MS, integer(0), "How long a broker that stops waits for others to lead in its place."
    )
    replica_lag_time_max_ms: int = _setting(
        10 * SECOND_MS, long(100), "A follower that has not caught up for this long leaves the in-sync set."
    )
    replica_catchup_max_bytes_per_second: int = _setting(
        100 * MIB, long(KIB), "How fast a follower that is not in sync is sent what it lacks, beside those that are."
    )
    auto_leader_rebalance_enable: bool = _setting(
        True, boolean(), "Whether partitions go back to their preferred leaders by themselves."
    )
    leader_imbalance_check_interval_seconds: int = _setting(300, long(1), "How often that is looked at.")
    leader_imbalance_per_broker_percentage: int = _setting(
        10, integer(0), "The share of a broker's preferred partitions that others may lead before it gets them back."
    )
    num_recovery_threads_per_data_dir: int = _setting(
        2, integer(1, 64), "How many logs of a log directory are recovered at the same time when the broker starts."
    )
    log_scrub_bytes_per_second: int = _setting(
        8 * MIB, long(0), "How fast old segments are read in the background to find damage; 0 for not at all."
    )
    log_scrub_interval_ms: int = _setting(
        15_000, long(1_000), "Time from the start of one background read of all data to the next, if the rate allows."
    )
    log_open_segments_max: int = _setting(
        20_000,
        integer(1),
        "Segment files kept open over all logs, fewer where the process may not have so many descriptors. Those that"
        " take appends stay open beyond this.",
    )
    log_open_indexes_max_bytes: int = _setting(
        64 * MIB, long(0), "Memory for the indexes of sealed segments over all logs; others are loaded when read."
    )
    http_listen: str = _setting("", string(), "HOST:PORT for the HTTP API, health and metrics; empty for none.")
    http_allowed_hosts: tuple[str, ...] = _setting(
        (),
        words(),
        "Names by which HTTP clients may ask for this broker, beside its addresses, localhost, the machine's name and"
        " the advertised hosts: what a proxy in front is called, for one. * for any, where no browser gets here.",
    )

    logging_format: str = _setting(
        "auto",
        string("auto", "text", "logfmt", "json"),
        "How log lines look: text for people, logfmt (key=value) or json for collectors; auto is text on a terminal and"
        " logfmt elsewhere.",
    )

    listeners: tuple[str, ...] = _setting(
        ("PLAINTEXT://127.0.0.1:9092",), words(), "NAME://HOST:PORT for each address to listen on; 0.0.0.0 for all."
    )
    advertised_listeners: tuple[str, ...] = _setting(
        (), words(), "NAME://HOST:PORT that clients of a listener are told to use; without it, the listener's own."
    )
    listener_security_protocol_map: tuple[str, ...] = _setting(
        ("PLAINTEXT:PLAINTEXT",), words(), "NAME:PROTOCOL for each listener's name. PLAINTEXT is the only protocol yet."
    )
    max_connections: int = _setting(
        10_000,
        integer(1),
        "Connections in all. A further one takes the place of the client's connection that is idle for longest, and is"
        " closed where none is. Brokers that follow this one are admitted beyond this.",
    )
    max_connections_per_ip: int = _setting(INT_MAX, integer(1), "Connections of one address.")
    connections_max_idle_ms: int = _setting(
        600 * SECOND_MS, long(SECOND_MS), "A connection without a request for this long is closed."
    )
    socket_request_max_bytes: int = _setting(
        100 * MIB, integer(KIB), "The largest request; a connection that announces more is closed."
    )
    queued_max_request_bytes: int = _setting(
        100 * MIB,
        long(KIB),
        "Memory for requests that arrive, over all connections. At least one request of socket.request.max.bytes has"
        " room; without room a connection is not read from.",
    )
    fetch_max_bytes: int = _setting(55 * MIB, integer(KIB), "The most that one fetch is answered with.")
    max_incremental_fetch_session_cache_slots: int = _setting(
        1000, integer(0), "Fetch sessions kept at a time (KIP-227)."
    )
    max_incremental_fetch_session_cache_partitions: int = _setting(
        200_000,
        integer(0),
        "Partitions of all fetch sessions together. One session has at most a fourth, one address a half of them.",
    )

    num_partitions: int = _setting(1, integer(1), "Partitions of a topic whose creator does not say how many.")
    default_replication_factor: int = _setting(
        1, integer(1), "Replicas of a topic whose creator does not say how many."
    )
    auto_create_topics_enable: bool = _setting(
        True, boolean(), "Whether a topic comes into being when a client asks for its metadata."
    )
    delete_topic_enable: bool = _setting(True, boolean(), "Whether topics may be deleted.")

    offsets_topic_num_partitions: int = _setting(
        50, integer(1), "Partitions of __consumer_offsets. Counts only until the first group has come."
    )
    offsets_topic_replication_factor: int = _setting(1, integer(1), "Replicas of __consumer_offsets.")
    offsets_topic_segment_bytes: int = _setting(100 * MIB, integer(KIB), "Segment size of __consumer_offsets.")
    offsets_retention_minutes: int = _setting(
        7 * 24 * 60, integer(1), "How long a group's offsets are kept once it has no members."
    )
    offsets_retention_check_interval_ms: int = _setting(600 * SECOND_MS, long(1), "How often expired offsets go.")
    offset_metadata_max_bytes: int = _setting(4096, integer(0), "The longest text that may come with an offset.")
    group_min_session_timeout_ms: int = _setting(
        SECOND_MS, integer(1), "The shortest session a member may ask. Kafka wants 6 s; a fast failover wants less."
    )
    group_max_session_timeout_ms: int = _setting(1800 * SECOND_MS, integer(1), "The longest session a member may ask.")
    group_initial_rebalance_delay_ms: int = _setting(
        0,
        integer(0),
        "How long an empty group waits for more members after the first. Kafka's default of 3000 saves rebalances when"
        " many members start together, and makes everyone who starts one consumer wait; so the default is 0 here.",
    )
    group_max_size: int = _setting(INT_MAX, integer(1), "Members of one group.")
    producer_id_expiration_ms: int = _topic_default(
        DAY_MS, integer(1), "An idempotent producer that is silent for this long is forgotten."
    )

    flush_policy: str = _topic_default(
        "group",
        string("group", "os"),
        "group: a record is acknowledged once it is fdatasynced. os: once the operating system has it in memory, as"
        " Kafka does; a power cut can lose it.",
    )
    min_insync_replicas: int = _topic_default(1, integer(1), "Replicas that must have a record of acks=all.")
    unclean_leader_election_enable: bool = _topic_default(
        False, boolean(), "Whether a replica that lacks committed records may lead. Cordwood never does this by itself."
    )
    message_max_bytes: int = _topic_default(MIB + 12, integer(0), "The largest batch, as compressed by the producer.")
    compression_type: str = _topic_default(
        "producer",
        string(*COMPRESSION_TYPES),
        "Kept for Kafka's tools. Cordwood stores batches as their producer compressed them, whatever stands here.",
    )
    log_segment_bytes: int = _topic_default(1024 * MIB, integer(14), "A segment of this size is closed.")
    log_roll_ms: int | None = _topic_default(None, long(1), "A segment of this age is closed. Before log.roll.hours.")
    log_roll_hours: int = _topic_default(168, integer(1), "A segment of this age is closed.")
    log_roll_jitter_ms: int | None = _topic_default(None, long(0), "At random up to this much earlier.")
    log_roll_jitter_hours: int = _topic_default(0, integer(0), "At random up to this much earlier.")
    log_index_size_max_bytes: int = _topic_default(10 * MIB, integer(4), "A segment with an index this long is closed.")
    log_index_interval_bytes: int = _topic_default(
        4096, integer(0), "Log bytes between two index entries; no more than 256 KiB."
    )
    log_preallocate: bool = _topic_default(
        False, boolean(), "Kept for Kafka's tools. Cordwood always reserves a segment's space ahead."
    )
    log_retention_ms: int | None = _topic_default(
        None, long(-1), "Age at which records go; -1 for never. Before log.retention.minutes and log.retention.hours."
    )
    log_retention_minutes: int | None = _topic_default(None, integer(-1), "Before log.retention.hours.")
    log_retention_hours: int = _topic_default(168, integer(-1), "Age at which records go; -1 for never.")
    log_retention_bytes: int = _topic_default(-1, long(-1), "Size of a partition beyond which records go; -1 for any.")
    log_retention_check_interval_ms: int = _setting(300 * SECOND_MS, long(1), "How often old segments are looked for.")
    log_segment_delete_delay_ms: int = _topic_default(
        60 * SECOND_MS, long(0), "How long a removed segment's file stays, for readers that have begun."
    )
    log_cleanup_policy: tuple[str, ...] = _topic_default(
        ("delete",), words("compact", "delete"), "delete: old segments go. compact: old values of a key go."
    )
    log_cleaner_min_cleanable_ratio: float = _topic_default(
        0.5, decimal(0, 1), "Share of superseded bytes from which a log is compacted."
    )
    log_cleaner_min_compaction_lag_ms: int = _topic_default(0, long(0), "Age before which nothing is compacted.")
    log_cleaner_max_compaction_lag_ms: int = _topic_default(LONG_MAX, long(1), "Age by which all is compacted.")
    log_cleaner_delete_retention_ms: int = _topic_default(DAY_MS, long(0), "How long a tombstone stays.")
    log_flush_interval_messages: int = _topic_default(
        LONG_MAX, long(1), "Kept for Kafka's tools; flush.policy says when records are flushed."
    )
    log_flush_interval_ms: int | None = _topic_default(
        None, long(0), "Kept for Kafka's tools; flush.policy says when records are flushed."
    )
    log_flush_scheduler_interval_ms: int = _topic_default(
        LONG_MAX, long(0), "Kept for Kafka's tools; flush.policy says when records are flushed."
    )
    log_message_timestamp_type: str = _topic_default(
        "CreateTime", string("CreateTime", "LogAppendTime"), "Whether records keep their producer's time or get ours."
    )
    log_message_timestamp_before_max_ms: int = _topic_default(
        LONG_MAX, long(0), "How far a record's time may lie in the past."
    )
    log_message_timestamp_after_max_ms: int = _topic_default(
        LONG_MAX, long(0), "How far a record's time may lie in the future."
    )

    def value_of(self, key: str) -> Value:
        """Return the value of a key. Raises KeyError for an unknown key."""
        if key not in SETTINGS:
            raise KeyError(key)
        value: Value = getattr(self, attribute_of(key))
        return value

    def is_given(self, key: str) -> bool:
        """Return True if the key was set explicitly, even to its default."""
        return key in self.given or self.value_of(key) != SETTINGS[key].default

    def text_of(self, key: str) -> str | None:
        """Return the value of a key as Kafka's tools write it. Raises KeyError for an unknown key."""
        return text_of(self.value_of(key))


def attribute_of(key: str) -> str:
    return key.replace(".", "_")


def key_of(attribute: str) -> str:
    return attribute.replace("_", ".")


SETTINGS: Mapping[str, Setting] = {
    key_of(row.name): Setting(key_of(row.name), *row.metadata["row"]) for row in fields(Settings) if row.metadata
}
"""The table by key, in the order of the fields."""

SECRETS = frozenset(key_of(row.name) for row in fields(Settings) if not row.repr)
"""Settings whose values are never shown."""
