"""The cluster as a whole: who is in it, who decides, and how well it is."""

from collections.abc import Iterable

import msgspec

from cordwood.cluster.http.api.brokers import Broker, broker_of
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.route import Asked, Nothing, Route
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage
from cordwood.cluster.metadata.quorum import VoterStatus


class QuorumMember(msgspec.Struct, frozen=True):
    """A broker that keeps the metadata. What only the active controller knows is null elsewhere."""

    broker_id: int
    is_voter: bool
    log_end: int | None
    last_heard_ms_ago: int | None


class Quorum(msgspec.Struct, frozen=True):
    """Who keeps the metadata, by Raft."""

    leader: int | None
    term: int
    commit_index: int
    members: list[QuorumMember]


class Cluster(msgspec.Struct, frozen=True):
    """The cluster as this broker knows it."""

    cluster_id: str
    controller: int | None
    answered_by: int
    """The broker that gave this answer."""
    brokers: list[Broker]
    quorum: Quorum
    topic_count: int
    partition_count: int
    under_replicated_partitions: int
    """Those that have fewer replicas in sync than they have replicas."""
    under_min_isr_partitions: int
    """Those that take no acks=all for want of replicas in sync."""
    offline_partitions: int
    """Those that have no leader."""
    reassigning_partitions: int
    """Those that are on their way to other brokers."""


async def describe_cluster(asked: Asked[Nothing, Nothing]) -> Cluster:
    """The brokers, the controller, and how many partitions are not as they should be."""
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
    """Whether a replica that is to stay lacks something."""
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
