"""Metrics of the broker in its cluster: readiness, controller, elections, ISR changes and the metadata quorum."""

from collections.abc import Iterator
from itertools import chain

from cordwood import __version__
from cordwood.cluster.http.metrics.family import Family, Row, counter, counters, gauge, gauge_over, gauges, histogram
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.changes import Cause
from cordwood.cluster.metadata.commands import NO_BROKER
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage


def _version(_watched: Watched) -> tuple[Row, ...]:
    return (((__version__,), 1),)


def _partitions(watched: Watched) -> Iterator[PartitionImage]:
    return chain.from_iterable(topic.partitions for topic in watched.quorum.image.topics_by_id.values())


def _fenced_brokers(watched: Watched) -> int:
    return sum(broker.is_fenced for broker in watched.quorum.image.brokers.values())


def _raft_leader_id(watched: Watched) -> int:
    leader_id = watched.quorum.status().leader_id
    return NO_BROKER if leader_id is None else leader_id


def _elections(event_log: MetadataEventLog) -> Iterator[Row]:
    return (((cause.value,), event_log.elections[cause]) for cause in Cause)


FAMILIES: tuple[Family, ...] = (
    gauges("build_info", "Always 1; the label is the version.", ("version",), _version),
    gauge(
        "broker_is_ready",
        "1 if this broker is ready to serve clients.",
        lambda watched: watched.why_not_ready() is None,
    ),
    gauge(
        "broker_is_controller",
        "1 if this broker is the active controller. The sum over all brokers is 1.",
        lambda watched: watched.quorum.is_leader,
    ),
    counter(
        "controllerships",
        "Times that this broker became the active controller.",
        lambda watched: watched.event_log.controllerships,
    ),
    gauge(
        "registered_brokers", "Registered brokers of the cluster.", lambda watched: len(watched.quorum.image.brokers)
    ),
    gauge("fenced_brokers", "Fenced brokers, in the metadata of this broker.", _fenced_brokers),
    counter("fencings", "Times that this broker was fenced.", lambda watched: watched.event_log.fencings),
    gauge(
        "cluster_partitions",
        "Partitions of the cluster, in the metadata of this broker.",
        lambda watched: sum(len(topic.partitions) for topic in watched.quorum.image.topics_by_id.values()),
    ),
    gauge_over(
        "offline_partitions",
        "Partitions of the cluster without a leader, in the metadata of this broker.",
        _partitions,
        lambda partition: partition.leader == NO_LEADER,
    ),
    counters(
        "elections",
        "Elections of this broker as a partition's leader, by cause: failure or shutdown of the previous"
        " leader; choice (the previous leader was available); return (there was no leader); unclean (forced"
        " by an operator).",
        ("cause",),
        lambda watched: _elections(watched.event_log),
    ),
    counter(
        "leaderships_lost",
        "Times that a partition of which this broker was the leader got another leader or none.",
        lambda watched: watched.event_log.leaderships_lost,
    ),
    counter(
        "isr_shrinks",
        "Times that the ISR of a partition led by this broker shrank.",
        lambda watched: watched.event_log.isr_shrinks,
    ),
    counter(
        "isr_expansions",
        "Times that the ISR of a partition led by this broker expanded.",
        lambda watched: watched.event_log.isr_expansions,
    ),
    gauge(
        "raft_term", "Raft term of the metadata quorum; each election raises it.", lambda watched: watched.quorum.term
    ),
    gauge("raft_leader_id", "Id of the metadata quorum's leader; -1 for none.", _raft_leader_id),
    gauge(
        "raft_commit_index",
        "Commit index of the metadata log.",
        lambda watched: watched.quorum.status().commit_index,
    ),
    gauge(
        "raft_applied_index",
        "Index up to which this broker has applied the metadata log.",
        lambda watched: watched.quorum.image.index,
    ),
    gauge(
        "raft_connected_voters",
        "Voters of the metadata quorum that this broker is connected to, including itself if it is a voter.",
        lambda watched: sum(voter.is_connected for voter in watched.quorum.status().voters),
    ),
    histogram(
        "raft_sync_duration_seconds",
        "Duration of a sync of the metadata journal; voters only.",
        lambda watched: watched.metadata_files.sync_seconds if watched.metadata_files else None,
    ),
    gauge(
        "raft_journal_bytes",
        "Size of the metadata journal; 0 if this broker is not a voter.",
        lambda watched: watched.metadata_files.journal_bytes if watched.metadata_files else 0,
    ),
    gauge(
        "raft_snapshot_bytes",
        "Size of the last metadata snapshot; 0 if this process has not written one.",
        lambda watched: watched.metadata_files.snapshot_bytes if watched.metadata_files else 0,
    ),
)
