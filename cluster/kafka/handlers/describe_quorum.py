"""DescribeQuorum: who votes on the metadata, who leads, and how far each of them is (KIP-595, KIP-836, KIP-853).

Kafka shows its metadata as a topic. Entry n of ours has offset n-1 there, as KRaft counts, so that the index of the
last entry is the end of that log. A quorum of one has agreed on all that it has.
"""

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.request import PartitionData as AskedPartition
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.metadata.commands import BrokerId

KEY, VERSIONS = ApiKey.DESCRIBE_QUORUM, range(3)

METADATA_TOPIC = "__cluster_metadata"

_UNKNOWN = -1


async def handle(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    if asked != [(METADATA_TOPIC, 0)]:
        # As in Kafka: there is one partition to be asked for, and who asks for others too is told nothing of it.
        return _response(
            tuple(
                TopicData(topic_name=topic.topic_name, partitions=tuple(map(_unknown, topic.partitions)))
                for topic in request.topics
            )
        )
    node = BrokerId(call.services.settings.node_id)
    broker = call.services.quorum.image.brokers[node]
    listeners = tuple(Listener(name=at.listener, host=at.host, port=at.port) for at in broker.endpoints)
    return _response(
        (TopicData(topic_name=METADATA_TOPIC, partitions=(_metadata(node, call),)),),
        (Node(node_id=node, listeners=listeners),),
    )


def _response(topics: tuple[TopicData, ...], nodes: tuple[Node, ...] = ()) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=ErrorCode.none, error_message=None, topics=topics, nodes=nodes)


def _metadata(node: BrokerId, call: Call) -> PartitionData:
    quorum, now_ms = call.services.quorum, call.services.wall_clock()
    end = quorum.image.index
    voter = ReplicaState(
        replica_id=node,
        replica_directory_id=None,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=node,
        leader_epoch=quorum.term,
        high_watermark=end,
        current_voters=(voter,),
        observers=(),
    )


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
