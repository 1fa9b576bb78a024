"""Metrics of the broker in its cluster: readiness, controller, elections, ISR changes and the metadata quorum."""

from collections.abc import Iterator

from cordwood import __version__
from cordwood.cluster.http.metrics.family import Family, Row, counter, counters, gauge, gauges, histogram
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.changes import Cause
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage

NO_BROKER = -1


def _version(_watched: Watched) -> tuple[Row, ...]:
    return (((__version__,), 1),)


def _partitions(watched: Watched) -> Iterator[PartitionImage]:
    topics = watched.quorum.image.topics_by_id.values()
    return (partition for topic in topics for partition in topic.partitions)


def _fenced_brokers(watched: Watched) -> int:
    return sum(broker.is_fenced for broker in watched.quorum.image.brokers.values())


def _offline_partitions(watched: Watched) -> int:
    return sum(partition.leader == NO_LEADER for partition in _partitions(watched))


def _raft_leader_id(watched: Watched) -> int:
    leader_id = watched.quorum.status().leader_id
    return NO_BROKER if leader_id is None else leader_id


def _elections(event_log: MetadataEventLog) -> Iterator[Row]:
    return (((cause.value,), event_log.elections[cause]) for cause in Cause)


FAMILIES: tuple[Family, ...] = (
    gauges("build_info", "1; the label has the version.", ("version",), _version),
    gauge("broker_is_ready", "1 if clients are well served here.", lambda watched: watched.why_not_ready() is None),
    gauge(
        "broker_is_controller",
        "1 if this broker is the active controller. The sum over all brokers is 1.",
        lambda watched: watched.quorum.is_leader,
    ),
    counter(
        "controllerships",
        "How often this broker became the active controller.",
        lambda watched: watched.event_log.controllerships,
    ),
    gauge("registered_brokers", "Brokers of the cluster.", lambda watched: len(watched.quorum.image.brokers)),
    gauge("fenced_brokers", "Registered brokers that may not lead, as this broker knows the cluster.", _fenced_brokers),
    counter("fencings", "How often this broker was fenced.", lambda watched: watched.event_log.fencings),
    gauge(
        "cluster_partitions",
        "Partitions of the cluster, as this broker knows it.",
        lambda watched: sum(1 for _ in _partitions(watched)),
    ),
    gauge(
        "offline_partitions",
        "Partitions of the cluster without a leader, as this broker knows it.",
        _offline_partitions,
    ),
    counters(
        "elections",
        "Elections by which this broker came to lead a partition. What became of the leader before: failure, shutdown;"
        " choice where it could have gone on; return where there was none; unclean where an operator forced it.",
        ("cause",),
        lambda watched: _elections(watched.event_log),
    ),
    counter(
        "leaderships_lost",
        "How often a partition that this broker led got another leader, or none.",
        lambda watched: watched.event_log.leaderships_lost,
    ),
    counter(
        "isr_shrinks",
        "How often a partition that this broker leads lost replicas in sync.",
        lambda watched: watched.event_log.isr_shrinks,
    ),
    counter(
        "isr_expansions",
        "How often a partition that this broker leads gained replicas in sync.",
        lambda watched: watched.event_log.isr_expansions,
    ),
    gauge("raft_term", "Term of the metadata quorum: one more for each election.", lambda watched: watched.quorum.term),
    gauge("raft_leader_id", "Broker that leads the metadata quorum; -1 for none.", _raft_leader_id),
    gauge(
        "raft_commit_index",
        "Metadata up to this log index is final.",
        lambda watched: watched.quorum.status().commit_index,
    ),
    gauge(
        "raft_applied_index",
        "Metadata up to this log index is what this broker goes by.",
        lambda watched: watched.quorum.image.index,
    ),
    gauge(
        "raft_connected_voters",
        "Voters of the metadata quorum that this broker is in touch with, itself included if it is one.",
        lambda watched: sum(voter.is_connected for voter in watched.quorum.status().voters),
    ),
    histogram(
        "raft_sync_duration_seconds",
        "Time to have the metadata's journal on disk, where this broker is a voter.",
        lambda watched: watched.metadata_files.sync_seconds if watched.metadata_files else None,
    ),
    gauge(
        "raft_journal_bytes",
        "Length of the metadata's journal; 0 for a broker that is no voter.",
        lambda watched: watched.metadata_files.journal_bytes if watched.metadata_files else 0,
    ),
    gauge(
        "raft_snapshot_bytes",
        "Size of the metadata snapshot written last; 0 where this process has not written one.",
        lambda watched: watched.metadata_files.snapshot_bytes if watched.metadata_files else 0,
    ),
)
