"""DescribeQuorum (55): leader, voters and observers of the metadata log, and log ends (KIP-595, KIP-836, KIP-853).

Kafka exposes the metadata log as a topic. Entry n of Cordwood's log has offset n-1 there, as in KRaft, so that the
index of the last entry is the log end offset. Only the quorum leader has the log ends of all voters: as in Kafka, the
answer is the leader's. If the leader cannot be reached, a broker returns the log ends that it has.
"""

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.request import PartitionData as AskedPartition
from kio.schema.describe_quorum.v2.request import TopicData as AskedTopic
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.voters import voters_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.quorum_leader import ASKING_BROKER, METADATA_TOPIC
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import QuorumStatus, VoterStatus
from cordwood.cluster.metadata.voter_changes import metadata_directory

KEY = ApiKey.DESCRIBE_QUORUM
RIGHTS: Rights = (Right(DESCRIBE, CLUSTER),)

CONTROLLER = "CONTROLLER"
"""The name of the voters' listener in responses. Each broker may have another one for it."""

_UNKNOWN = -1


async def handle(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    if not call.may(DESCRIBE, CLUSTER):
        return _response((), refusal=refusal_of(CLUSTER))
    if not _is_for_metadata(request):
        # As in Kafka, a request that names anything but the one metadata partition gets only errors.
        return _response(rows(_unknown_topic, request.topics))
    status, image = call.services.quorum.status(), call.services.quorum.image
    if call.client_id != ASKING_BROKER and status.leader_id not in (None, call.services.settings.node_id):
        answer = await call.services.quorum_leader.describe(BrokerId(status.leader_id), call.identity)
        if answer is not None:
            return answer
    metadata = _metadata(status, image, call.services.wall_clock())
    nodes = _nodes((voter.broker_id for voter in status.voters), call)
    return _response((TopicData(topic_name=METADATA_TOPIC, partitions=(metadata,)),), nodes)


def _is_for_metadata(request: DescribeQuorumRequest) -> bool:
    """Whether the request names the metadata topic's only partition, and nothing else."""
    if [topic.topic_name for topic in islice(request.topics, 2)] != [METADATA_TOPIC]:
        return False
    partitions = next(iter(request.topics)).partitions
    return [partition.partition_index for partition in islice(partitions, 2)] == [0]


def _response(
    topics: tuple[TopicData, ...], nodes: tuple[Node, ...] = (), refusal: Refused | None = None
) -> DescribeQuorumResponse:
    code, message = (ErrorCode.none, None) if refusal is None else (refusal.code, refusal.message)
    return DescribeQuorumResponse(error_code=code, error_message=message, topics=topics, nodes=nodes)


def _nodes(voters: Iterable[BrokerId], call: Call) -> tuple[Node, ...]:
    """Return the addresses of the voters: that for other voters, where it is known, and those for clients."""
    image = call.services.quorum.image
    # Until the voters change, the metadata does not have them.
    founders = {} if image.voters else voters_of(call.services.settings)
    nodes = []
    for voter_id in voters:
        broker, voter = image.brokers.get(voter_id), image.voters.get(voter_id)
        address = founders.get(voter_id) if voter is None else (voter.host, voter.port)
        listeners = [] if address is None else [Listener(name=CONTROLLER, host=address[0], port=address[1])]
        if broker is not None:
            listeners += [Listener(name=at.listener, host=at.host, port=at.port) for at in broker.endpoints]
        if listeners:
            nodes.append(Node(node_id=voter_id, listeners=tuple(listeners)))
    return tuple(nodes)


def _metadata(status: QuorumStatus, image: Image, now_ms: int) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=_UNKNOWN if status.leader_id is None else status.leader_id,
        leader_epoch=status.term,
        high_watermark=status.commit_index,
        current_voters=tuple(_replica(voter, status.commit_index, image, now_ms) for voter in status.voters),
        observers=tuple(_replica(observer, status.commit_index, image, now_ms) for observer in status.observers),
    )


def _replica(known: VoterStatus, commit_index: int, image: Image, now_ms: int) -> ReplicaState:
    log_end = _UNKNOWN if known.log_end is None else known.log_end
    heard_ms = _UNKNOWN if known.last_heard_ms_ago is None else now_ms - known.last_heard_ms_ago
    return ReplicaState(
        replica_id=known.broker_id,
        replica_directory_id=_directory(known.broker_id, image),
        log_end_offset=log_end,
        last_fetch_timestamp=heard_ms,
        last_caught_up_timestamp=heard_ms if log_end >= commit_index else _UNKNOWN,
    )


def _directory(broker_id: BrokerId, image: Image) -> UUID | None:
    """Return the id of a voter's metadata directory as the voters have it, or else as the broker has registered it."""
    voter = image.voters.get(broker_id)
    directory_id = metadata_directory(image, broker_id) if voter is None else voter.directory_id
    try:
        return None if directory_id is None else UUID(directory_id)
    except ValueError:
        return None


def _unknown_topic(asked: AskedTopic) -> TopicData:
    return TopicData(topic_name=asked.topic_name, partitions=rows(_unknown, asked.partitions))


def _unknown(asked: AskedPartition) -> PartitionData:
    return PartitionData(
        partition_index=asked.partition_index,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message="This server does not host this topic-partition.",
        leader_id=_UNKNOWN,
        leader_epoch=_UNKNOWN,
        high_watermark=_UNKNOWN,
        current_voters=(),
        observers=(),
    )
