"""InitializeShareGroupState (83): begins share partitions anew, at an offset or by configs (KIP-932).

The sender is a group coordinator. A higher state epoch fences the partition's leader.
"""

from kio.schema.initialize_share_group_state.v0.request import InitializeShareGroupStateRequest, PartitionData
from kio.schema.initialize_share_group_state.v0.response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.share_states import AnsweredPartition, AnsweredTopic, answer_all
from cordwood.cluster.share.coordinator import Initialization
from cordwood.cluster.share.states import SharePartitionKey

KEY = ApiKey.INITIALIZE_SHARE_GROUP_STATE
RIGHTS: Rights = (Right(CLUSTER_ACTION, CLUSTER),)


async def handle(request: InitializeShareGroupStateRequest, call: Call) -> InitializeShareGroupStateResponse:
    answered = await answer_all(request, _row, call.services.share_coordinator.initialize, call)
    return InitializeShareGroupStateResponse(results=rows(_topic, answered))


def _topic(topic: AnsweredTopic) -> InitializeStateResult:
    return InitializeStateResult(topic_id=topic.topic_id, partitions=rows(_partition, topic.partitions))


def _partition(answered: AnsweredPartition) -> PartitionResult:
    code, message = answered.answer.code, answered.answer.message
    return PartitionResult(partition=answered.partition, error_code=code, error_message=message)


def _row(key: SharePartitionKey, partition: PartitionData) -> Initialization:
    return Initialization(key, partition.state_epoch, partition.start_offset)
