"""Broker configuration: a table of every key with its type, default, bounds and documentation.

Keys have Kafka's names where Kafka has them. An attribute is its key with underscores for dots.
`cluster/config/sources.py` reads the values from a file, the environment and the command line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from cordwood.cluster.config.archive_settings import ArchiveSettings
from cordwood.cluster.config.authentication_settings import AuthenticationSettings
from cordwood.cluster.config.cleaner_settings import CleanerSettings
from cordwood.cluster.config.group_settings import GroupDefaults
from cordwood.cluster.config.http_settings import HttpSettings
from cordwood.cluster.config.link_settings import LinkSettings
from cordwood.cluster.config.setting import DAY_MS, HOUR_MS, KIB, MIB, SECOND_MS, Setting, setting, topic_default
from cordwood.cluster.config.share_settings import ShareGroupSettings
from cordwood.cluster.config.throttle_settings import ThrottleSettings
from cordwood.cluster.config.tls_settings import TlsSettings
from cordwood.cluster.metadata.config_values import (
    INT_MAX,
    LONG_MAX,
    Value,
    boolean,
    integer,
    long,
    string,
    text_of,
    words,
)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER_PREFIX = "listener.name."
"""Start of a key that counts for one listener: `listener.name.external.ssl.keystore.location`."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The value of `authorizer.class.name` that enforces ACLs: the name of Kafka's authorizer with the same decisions."""

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(
    GroupDefaults,
    ThrottleSettings,
    ShareGroupSettings,
    CleanerSettings,
    ArchiveSettings,
    AuthenticationSettings,
    LinkSettings,
    HttpSettings,
    TlsSettings,
):
    """The static configuration of a broker. Times are in milliseconds, sizes in bytes, unless the name has a unit.

    The default is one broker on 127.0.0.1:9092 with its data in ./cordwood-data.
    """

    given: frozenset[str] = frozenset()
    """Keys that were set explicitly."""
    listener_overrides: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """Values of single listeners, by `override_key`: some are secrets."""

    node_id: int = setting(1, integer(0), "The id of this broker, unique in its cluster.")
    cluster_id: str = setting(
        "", string(), "The id of a new cluster; empty for a random id. An existing cluster must have this id."
    )
    broker_rack: str | None = setting(
        None, string(), "The rack of this broker, which clients see in the metadata (KIP-36)."
    )
    log_dirs: tuple[str, ...] = setting(
        ("./cordwood-data",), words(), "Directories for the logs, one per disk. The first one also holds the metadata."
    )
    log_dir_headroom_bytes: int = setting(
        32 * MIB,
        long(0),
        "If less than this is free in a log directory, its partitions refuse produce requests. Reads continue.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        2 * MIB, long(KIB), "Bytes of the metadata log after which a snapshot replaces it."
    )

    controller_quorum_voters: tuple[str, ...] = setting(
        (),
        words(),
        "ID@HOST:PORT of each of the 1, 3 or 5 voters that found the metadata quorum; empty for a cluster of one"
        " broker. Once voters were added or removed, the metadata names them.",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        (),
        words(),
        "HOST:PORT of voters that a broker asks for all voters, if none of its known voters answers. With it, a broker"
        " never founds a new cluster.",
    )
    controller_quorum_secret: str = setting(
        "",
        string(),
        "A secret that all brokers of the cluster share. A broker without it cannot join the metadata"
        " quorum. Required if other machines can reach the voters.",
        is_secret=True,
    )
    controller_quorum_election_timeout_ms: int = setting(
        2 * SECOND_MS, integer(100), "The longest time without a leader after which a voter starts an election."
    )
    controller_listener_names: tuple[str, ...] = setting(
        ("CONTROLLER",),
        words(),
        "The listener of the voters, from `listeners`; if it is not listed there, the address in"
        " controller.quorum.voters.",
    )
    inter_broker_listener_name: str | None = setting(
        None, string(), "The listener for connections between brokers; the first one if unset."
    )
    broker_heartbeat_interval_ms: int = setting(
        200, integer(10), "The interval of a broker's heartbeats to the controller."
    )
    broker_session_timeout_ms: int = setting(
        2 * SECOND_MS,
        integer(100),
        "A broker without a heartbeat for this long is fenced, and its partitions get other leaders. A"
        " broker whose process was killed is fenced sooner.",
    )
    authorizer_class_name: str = setting(
        "",
        string("", STANDARD_AUTHORIZER),
        f"{STANDARD_AUTHORIZER} enforces ACLs. If empty, every client may do everything, and ACLs are only stored.",
    )
    super_users: str = setting(
        "",
        string(),
        "Principals that may do everything, whatever the ACLs are, separated by semicolons:"
        " User:admin;User:CN=broker-1,O=example. The principals of brokers belong here.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, boolean(), "Whether everyone may use a resource that no ACL names."
    )
    controlled_shutdown_enable: bool = setting(
        True, boolean(), "Whether a broker moves the leadership of its partitions to other brokers before it stops."
    )
    controlled_shutdown_max_wait_ms: int = setting(
        10 * SECOND_MS,
        integer(0),
        "The longest time that a stopping broker waits until other brokers lead its partitions.",
    )
    replica_lag_time_max_ms: int = setting(
        10 * SECOND_MS, long(100), "A follower that has not caught up for this long is removed from the ISR."
    )
    replica_catchup_max_bytes_per_second: int = setting(
        100 * MIB, long(KIB), "The rate limit for sending missing records to followers that are not in sync."
    )
    auto_leader_rebalance_enable: bool = setting(
        True, boolean(), "Whether the controller elects preferred leaders automatically."
    )
    auto_balance: str = setting(
        "leaders",
        string("off", "leaders", "all"),
        "What the controller balances without an operator. leaders: preferred leaders, if auto.leader.rebalance.enable"
        " is set. all: also the replicas of brokers that have been down for auto.balance.grace.ms, and bytes on disk.",
        dynamic=True,
    )
    auto_balance_grace_ms: int = setting(
        1800 * SECOND_MS,
        long(1),
        "How long the set of live brokers must have been the same before auto.balance=all moves replicas.",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        (),
        words(),
        "Log directories that get no new replicas (KIP-1066), set dynamically for one broker; * for all of them. The"
        " replicas that they have stay.",
        dynamic=True,
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, long(1), "The interval of the checks for leader imbalance."
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        integer(0),
        "The percentage of a broker's preferred partitions that other brokers may lead before preferred"
        " leaders are elected.",
    )
    num_recovery_threads_per_data_dir: int = setting(
        2, integer(1, 64), "Logs per log directory that are recovered in parallel when the broker starts."
    )
    imports_delay_ms: int = setting(
        30 * SECOND_MS,
        long(0),
        "Time from a broker's start to its imports of the code of all requests, which take a second of processor time."
        " A request that comes before them imports its own.",
    )
    log_scrub_bytes_per_second: int = setting(
        8 * MIB, long(0), "The rate at which the scrubber reads sealed segments to detect damage; 0 disables it."
    )
    log_scrub_interval_ms: int = setting(
        15_000, long(1_000), "Time from the start of one background read of all data to the next, if the rate allows."
    )
    log_open_segments_max: int = setting(
        20_000,
        integer(1),
        "Open segment files of all logs together, or fewer if the process's limit of file descriptors is"
        " lower. Active segments always stay open and may exceed this.",
    )
    log_open_indexes_max_bytes: int = setting(
        64 * MIB,
        long(0),
        "Memory for the indexes of sealed segments of all logs together. Other indexes are loaded when they are read.",
    )
    http_listen: str = setting(
        "", string(), "HOST:PORT of the listener for the HTTP API, health and metrics; empty for none."
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        (),
        words(),
        "Additional Host names that the HTTP listener accepts, such as the name of a proxy. The broker's"
        " addresses, localhost, the machine's name and the advertised hosts are always accepted. * accepts"
        " any name; use it only if no browser can reach the listener.",
    )

    audit_log_enable: str = setting(
        "auto",
        string("auto", "on", "off"),
        "Whether administrative acts and refusals are written to an audit log. auto: if clients authenticate, or if"
        " authorizer.class.name is set.",
    )
    audit_log_dir: str = setting(
        "", string(), "The directory of the audit log; empty for the directory audit in the first of log.dirs."
    )
    audit_log_file_bytes: int = setting(
        64 * MIB, long(KIB), "The size at which the audit log begins another file. The hash chain continues."
    )
    audit_log_files: int = setting(
        16, integer(2), "The number of files of the audit log that are kept; the oldest are removed."
    )

    audit_log_topic_enable: bool = setting(
        False, boolean(), "Whether the lines of the audit log are also written to the topic __audit."
    )
    audit_log_topic_num_partitions: int = setting(
        16, integer(1), "Partitions of __audit. Each broker writes to one that it leads."
    )
    audit_log_topic_replication_factor: int = setting(1, integer(1), "Replicas of __audit.")

    logging_format: str = setting(
        "auto",
        string("auto", "text", "logfmt", "json"),
        "The format of log lines: text, logfmt (key=value) or json. auto is text on a terminal and logfmt otherwise.",
    )

    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        words(),
        "NAME://HOST:PORT for each address to listen on; 0.0.0.0 listens on all interfaces.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        words(),
        "NAME://HOST:PORT that clients of a listener connect to; the default is the listener's own address.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        tuple(f"{protocol}:{protocol}" for protocol in SECURITY_PROTOCOLS),
        words(),
        "NAME:PROTOCOL for each listener's name. The protocols are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    )
    max_connections: int = setting(
        10_000,
        integer(1),
        "The maximum number of connections. A new connection beyond it replaces the client connection that"
        " is idle for the longest time; if none is idle, the new one is closed. Brokers that replicate from"
        " this one are accepted beyond it.",
    )
    max_connections_per_ip: int = setting(INT_MAX, integer(1), "The maximum number of connections from one address.")
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        (), words(), "ADDRESS:NUMBER for each address with another limit than max.connections.per.ip."
    )
    connections_max_idle_ms: int = setting(
        600 * SECOND_MS, long(SECOND_MS), "A connection without a request for this long is closed."
    )
    socket_request_max_bytes: int = setting(
        100 * MIB, integer(KIB), "The largest request. A connection that sends a larger one is closed."
    )
    queued_max_request_bytes: int = setting(
        100 * MIB,
        long(KIB),
        "Memory for incoming requests of all connections. It has room for at least one request of"
        " socket.request.max.bytes. While it is full, no further requests are read.",
    )
    fetch_max_bytes: int = setting(55 * MIB, integer(KIB), "The largest Fetch response.")
    replica_selector_class: str = setting(
        RACK_AWARE,
        string(RACK_AWARE, "org.apache.kafka.common.replica.LeaderSelector"),
        "Which replica a consumer reads that sends its rack (client.rack): an in-sync replica in that rack, or the"
        " leader (KIP-392). Kafka's default is the leader.",
    )
    telemetry_max_bytes: int = setting(
        1 << 20, integer(1, 16 << 20), "The largest push of client metrics, compressed or not (KIP-714)."
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1000, integer(0), "The maximum number of fetch sessions (KIP-227)."
    )
    max_incremental_fetch_session_cache_partitions: int = setting(
        200_000,
        integer(0),
        "The maximum number of partitions in all fetch sessions together. One session may have a fourth of"
        " them, one address a half.",
    )

    num_partitions: int = setting(
        1, integer(1), "Partitions of a topic that is created without a number of partitions."
    )
    default_replication_factor: int = setting(
        1, integer(1), "Replicas of a topic that is created without a replication factor."
    )
    auto_create_topics_enable: bool = setting(
        True, boolean(), "Whether a topic is created when a client requests its metadata."
    )
    delete_topic_enable: bool = setting(True, boolean(), "Whether topics may be deleted.")

    offsets_topic_num_partitions: int = setting(
        50, integer(1), "Partitions of __consumer_offsets. Used when the topic is created, for the first group."
    )
    offsets_topic_replication_factor: int = setting(1, integer(1), "Replicas of __consumer_offsets.")
    offsets_topic_segment_bytes: int = setting(100 * MIB, integer(KIB), "Segment size of __consumer_offsets.")
    offsets_retention_minutes: int = setting(
        7 * 24 * 60, integer(1), "How long the committed offsets of a group without members are kept."
    )
    offsets_retention_check_interval_ms: int = setting(
        600 * SECOND_MS, long(1), "The interval at which expired offsets are removed."
    )
    offset_metadata_max_bytes: int = setting(4096, integer(0), "The longest metadata text of a committed offset.")
    group_min_session_timeout_ms: int = setting(
        SECOND_MS,
        integer(1),
        "The shortest session timeout that a member may request. Kafka's default is 6 s; a shorter one"
        " allows a faster failover.",
    )
    group_max_session_timeout_ms: int = setting(
        1800 * SECOND_MS, integer(1), "The longest session timeout that a member may request."
    )
    group_initial_rebalance_delay_ms: int = setting(
        0,
        integer(0),
        "How long an empty group waits for more members after the first one. Kafka's default of 3000 avoids"
        " rebalances when many members start together, but delays a single consumer; the default is"
        " therefore 0. `cordwood up` sets 3000.",
    )
    group_max_size: int = setting(INT_MAX, integer(1), "The maximum number of members of a group.")
    transaction_state_log_num_partitions: int = setting(
        50, integer(1), "Partitions of __transaction_state. Used when the topic is created, for the first transaction."
    )
    transaction_state_log_replication_factor: int = setting(1, integer(1), "Replicas of __transaction_state.")
    transaction_state_log_segment_bytes: int = setting(100 * MIB, integer(KIB), "Segment size of __transaction_state.")
    transaction_max_timeout_ms: int = setting(
        900 * SECOND_MS, integer(1), "The longest timeout that a transactional producer may request."
    )
    transactional_id_expiration_ms: int = setting(
        7 * DAY_MS, integer(1), "A transactional id without a transaction for this long is removed."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        2 * SECOND_MS,
        integer(1),
        "The interval at which transactions that exceed their timeout are aborted. Kafka's default is 10 s;"
        " consumers of read_committed wait for a shorter time if the interval is shorter.",
    )
    producer_id_expiration_ms: int = topic_default(
        DAY_MS, integer(1), "The state of an idempotent producer that writes nothing for this long is removed."
    )

    flush_policy: str = topic_default(
        "group",
        string("group", "os"),
        "When a record is acknowledged. group: after fdatasync. os: once it is in the operating system's"
        " memory, as in Kafka; a power cut can lose it.",
    )
    min_insync_replicas: int = topic_default(1, integer(1), "In-sync replicas that a write with acks=all requires.")
    unclean_leader_election_enable: bool = topic_default(
        False,
        boolean(),
        "Kept for Kafka's tools. Cordwood elects a replica that lacks committed records only on an operator's request.",
    )
    message_max_bytes: int = topic_default(MIB + 12, integer(0), "The largest batch, after compression.")
    compression_type: str = topic_default(
        "producer",
        string(*COMPRESSION_TYPES),
        "Kept for Kafka's tools. Cordwood always stores batches as their producer compressed them.",
    )
    log_segment_bytes: int = topic_default(1024 * MIB, integer(14), "The size at which a new segment is rolled.")
    log_roll_ms: int | None = topic_default(
        None, long(1), "The age at which a new segment is rolled. Has precedence over log.roll.hours."
    )
    log_roll_hours: int = topic_default(168, integer(1), "The age at which a new segment is rolled.")
    log_roll_jitter_ms: int | None = topic_default(
        None, long(0), "The largest random time by which segments are rolled earlier."
    )
    log_roll_jitter_hours: int = topic_default(
        0, integer(0), "The largest random time by which segments are rolled earlier."
    )
    log_index_size_max_bytes: int = topic_default(
        10 * MIB, integer(4), "The size of the offset index at which a new segment is rolled."
    )
    log_index_interval_bytes: int = topic_default(
        4096, integer(0), "Log bytes between two index entries; at most 256 KiB."
    )
    log_preallocate: bool = topic_default(
        False, boolean(), "Kept for Kafka's tools. Cordwood always preallocates a segment's space."
    )
    log_retention_ms: int | None = topic_default(
        None,
        long(-1),
        "The age at which records are deleted; -1 for no limit. Has precedence over log.retention.minutes"
        " and log.retention.hours.",
    )
    log_retention_minutes: int | None = topic_default(
        None,
        integer(-1),
        "The age at which records are deleted; -1 for no limit. Has precedence over log.retention.hours.",
    )
    log_retention_hours: int = topic_default(168, integer(-1), "The age at which records are deleted; -1 for no limit.")
    log_retention_bytes: int = topic_default(
        -1, long(-1), "The size of a partition above which its oldest segments are deleted; -1 for no limit."
    )
    log_retention_check_interval_ms: int = setting(
        300 * SECOND_MS, long(1), "The interval of the checks for segments to delete."
    )
    log_segment_delete_delay_ms: int = topic_default(
        60 * SECOND_MS, long(0), "How long the files of a deleted segment are kept for readers that are using them."
    )
    log_cleanup_policy: tuple[str, ...] = topic_default(
        ("delete",),
        words("compact", "delete"),
        "delete: old segments are deleted. compact: older values of a key are removed. Empty: everything is kept.",
    )
    log_flush_interval_messages: int = topic_default(
        LONG_MAX, long(1), "Kept for Kafka's tools. flush.policy determines when records are flushed."
    )
    log_flush_interval_ms: int | None = topic_default(
        None, long(0), "Kept for Kafka's tools. flush.policy determines when records are flushed."
    )
    log_flush_scheduler_interval_ms: int = topic_default(
        LONG_MAX, long(0), "Kept for Kafka's tools. flush.policy determines when records are flushed."
    )
    log_message_timestamp_type: str = topic_default(
        "CreateTime",
        string("CreateTime", "LogAppendTime"),
        "Whether records have the producer's timestamp or the broker's.",
    )
    log_message_timestamp_before_max_ms: int = topic_default(
        LONG_MAX, long(0), "The largest time by which a record's timestamp may be older than the broker's clock."
    )
    log_message_timestamp_after_max_ms: int = topic_default(
        HOUR_MS,
        long(0),
        "The largest time by which a record's timestamp may be ahead of the broker's clock (KIP-1030).",
    )

    def value_of(self, key: str) -> Value:
        """Return the value of a key. Raises KeyError for an unknown key."""
        if key not in SETTINGS:
            raise KeyError(key)
        value: Value = getattr(self, attribute_of(key))
        return value

    def listener_value(self, listener: str, key: str, mechanism: str = "") -> Value:
        """Return a key's value for a listener, and for a SASL mechanism of it if one is named."""
        for prefix in (f"{listener}.{mechanism}", listener) if mechanism else (listener,):
            name = override_key(f"{LISTENER_PREFIX}{prefix}.{key}")
            if name in self.listener_overrides:
                return self.listener_overrides[name]
        return self.value_of(key)

    def has_own_value(self, listener: str, key: str) -> bool:
        """Return True if the key was set for this listener by name."""
        return override_key(f"{LISTENER_PREFIX}{listener}.{key}") in self.listener_overrides

    def is_given(self, key: str) -> bool:
        """Return True if the key was set explicitly, even to its default."""
        return key in self.given or self.value_of(key) != SETTINGS[key].default

    def text_of(self, key: str) -> str | None:
        """Return the value of a key as Kafka's tools write it. Raises KeyError for an unknown key."""
        return text_of(self.value_of(key))


def override_key(key: str) -> str:
    """Return a key of `Settings.listener_overrides`: environment variables have no dots, so names lose underscores."""
    return key.lower().replace("_", ".")


def overridden(key: str) -> Setting | None:
    """Return the setting that `listener.name.NAME.KEY` or `listener.name.NAME.MECHANISM.KEY` overrides, or None."""
    parts = key.split(".")
    candidates = (".".join(parts[start:]) for start in range(3, len(parts)))
    return next((SETTINGS[rest] for rest in candidates if rest in SETTINGS and SETTINGS[rest].is_per_listener), None)


def attribute_of(key: str) -> str:
    return key.replace(".", "_")


def key_of(attribute: str) -> str:
    return attribute.replace("_", ".")


SETTINGS: Mapping[str, Setting] = {
    key_of(row.name): Setting(key_of(row.name), *row.metadata["row"])
    for row in sorted(fields(Settings), key=lambda row: row.name not in Settings.__annotations__)
    if row.metadata
}
"""The table by key, in the order of the fields: first those of `Settings` itself, then those of TLS, HTTP and so on."""

SECRETS = frozenset(key_of(row.name) for row in fields(Settings) if row.metadata and not row.repr)
"""Settings whose values are never shown."""
