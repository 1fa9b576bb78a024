"""The cluster over HTTP: brokers, controller, metadata quorum and partition health."""

import msgspec

from cordwood.cluster.http.api.brokers import BrokerDescription, broker_of
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DESCRIBE_CLUSTER
from cordwood.cluster.metadata.elections import commit_size, is_moving, is_under_replicated
from cordwood.cluster.metadata.image import NO_LEADER
from cordwood.cluster.metadata.quorum import VoterStatus


class QuorumMember(msgspec.Struct, frozen=True):
    """A voter or an observer of the metadata quorum. Values that only the active controller has are null elsewhere."""

    broker_id: int
    is_voter: bool
    log_end: int | None
    last_heard_ms_ago: int | None


class QuorumDescription(msgspec.Struct, frozen=True):
    """The metadata quorum (Raft)."""

    leader: int | None
    term: int
    commit_index: int
    members: list[QuorumMember]


class ClusterDescription(msgspec.Struct, frozen=True):
    """The cluster in this broker's metadata."""

    cluster_id: str
    controller: int | None
    answered_by: int
    """The id of the broker that answered."""
    brokers: list[BrokerDescription]
    quorum: QuorumDescription
    topic_count: int
    partition_count: int
    under_replicated_partitions: int
    """Partitions with fewer in-sync replicas than they have, or will have after their reassignment."""
    under_min_isr_partitions: int
    """Partitions that refuse acks=all: fewer replicas in sync than min.insync.replicas."""
    offline_partitions: int
    """Partitions without a leader."""
    reassigning_partitions: int
    """Partitions with a reassignment in progress."""


async def describe_cluster(asked: ApiRequest[Nothing, Nothing]) -> ClusterDescription:
    """Describe the cluster: brokers, controller, metadata quorum, and the number of unhealthy partitions."""
    context = asked.context
    image = context.image
    quorum, topics = _quorum(context), image.topics_by_id.values()
    under_replicated = under_min_isr = offline = reassigning = 0
    async for min_isr, partition in context.turns.within((image.min_isr(topic), topic.partitions) for topic in topics):
        under_replicated += is_under_replicated(partition)
        size = commit_size(partition, min_isr, image.metadata_version)
        under_min_isr += len(partition.isr) < min(size, len(partition.replicas))
        offline += partition.leader == NO_LEADER
        reassigning += is_moving(partition)
    return ClusterDescription(
        cluster_id=image.cluster_id,
        controller=quorum.leader,
        answered_by=int(context.watched.broker_id),
        brokers=[broker_of(broker, context) for _, broker in sorted(image.brokers.items())],
        quorum=quorum,
        topic_count=len(topics),
        partition_count=sum(len(topic.partitions) for topic in topics),
        under_replicated_partitions=under_replicated,
        under_min_isr_partitions=under_min_isr,
        offline_partitions=offline,
        reassigning_partitions=reassigning,
    )


def _quorum(context: Context) -> QuorumDescription:
    status = context.watched.quorum.status()
    members = [*((voter, True) for voter in status.voters), *((other, False) for other in status.observers)]
    return QuorumDescription(
        leader=None if status.leader_id is None else int(status.leader_id),
        term=status.term,
        commit_index=status.commit_index,
        members=[_member(member, is_voter) for member, is_voter in members],
    )


def _member(member: VoterStatus, is_voter: bool) -> QuorumMember:
    return QuorumMember(int(member.broker_id), is_voter, member.log_end, member.last_heard_ms_ago)


ROUTES = (
    Route(
        "GET",
        "/v1/cluster",
        describe_cluster,
        Nothing,
        Nothing,
        ClusterDescription,
        requires=(DESCRIBE_CLUSTER,),
        refusals=(503,),
    ),
)
