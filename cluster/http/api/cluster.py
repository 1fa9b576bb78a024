"""The cluster over HTTP: brokers, controller, metadata quorum and partition health."""

from collections.abc import Iterable

import msgspec

from cordwood.cluster.http.api.brokers import Broker, broker_of
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.route import Asked, Nothing, Route
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage
from cordwood.cluster.metadata.quorum import VoterStatus


class QuorumMember(msgspec.Struct, frozen=True):
    """A voter or an observer of the metadata quorum. Values that only the active controller has are null elsewhere."""

    broker_id: int
    is_voter: bool
    log_end: int | None
    last_heard_ms_ago: int | None


class Quorum(msgspec.Struct, frozen=True):
    """The metadata quorum (Raft)."""

    leader: int | None
    term: int
    commit_index: int
    members: list[QuorumMember]


class Cluster(msgspec.Struct, frozen=True):
    """The cluster as this broker knows it."""

    cluster_id: str
    controller: int | None
    answered_by: int
    """The id of the broker that answered."""
    brokers: list[Broker]
    quorum: Quorum
    topic_count: int
    partition_count: int
    under_replicated_partitions: int
    """Partitions with fewer in-sync replicas than replicas."""
    under_min_isr_partitions: int
    """Partitions that refuse acks=all: fewer replicas in sync than min.insync.replicas."""
    offline_partitions: int
    """Partitions without a leader."""
    reassigning_partitions: int
    """Partitions with a reassignment in progress."""


async def describe_cluster(asked: Asked[Nothing, Nothing]) -> Cluster:
    """Describe the cluster: brokers, controller, metadata quorum, and the number of unhealthy partitions."""
    context = asked.context
    image = context.image
    partitions = [partition for topic in image.topics_by_id.values() for partition in topic.partitions]
    quorum = _quorum(context)
    return Cluster(
        cluster_id=image.cluster_id,
        controller=quorum.leader,
        answered_by=int(context.watched.broker_id),
        brokers=[broker_of(broker, context) for _, broker in sorted(image.brokers.items())],
        quorum=quorum,
        topic_count=len(image.topics_by_id),
        partition_count=len(partitions),
        under_replicated_partitions=sum(map(is_under_replicated, partitions)),
        under_min_isr_partitions=sum(_lack_replicas(image)),
        offline_partitions=sum(partition.leader == NO_LEADER for partition in partitions),
        reassigning_partitions=sum(bool(partition.adding or partition.removing) for partition in partitions),
    )


def is_under_replicated(partition: PartitionImage) -> bool:
    """Return whether fewer replicas are in sync than the partition has."""
    return len(partition.isr) < len(partition.replicas)


def _lack_replicas(image: Image) -> Iterable[bool]:
    for topic in image.topics_by_id.values():
        min_isr = image.min_isr(topic)
        yield from (len(each.isr) < min(min_isr, len(each.replicas)) for each in topic.partitions)


def _quorum(context: Context) -> Quorum:
    status = context.watched.quorum.status()
    members = [*((voter, True) for voter in status.voters), *((other, False) for other in status.observers)]
    return Quorum(
        leader=None if status.leader_id is None else int(status.leader_id),
        term=status.term,
        commit_index=status.commit_index,
        members=[_member(member, is_voter) for member, is_voter in members],
    )


def _member(member: VoterStatus, is_voter: bool) -> QuorumMember:
    return QuorumMember(int(member.broker_id), is_voter, member.log_end, member.last_heard_ms_ago)


ROUTES = (Route("GET", "/v1/cluster", describe_cluster, Nothing, Nothing, Cluster, refusals=(503,)),)
