"""DeleteShareGroupState (86): deletes the state of share partitions (KIP-932).

The sender is a group coordinator. A share partition without state is no error.
"""

from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest
from kio.schema.delete_share_group_state.v0.response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.share_states import AnsweredPartition, AnsweredTopic, answer_all
from cordwood.cluster.share.coordinator import Deletion

KEY = ApiKey.DELETE_SHARE_GROUP_STATE
RIGHTS: Rights = (Right(CLUSTER_ACTION, CLUSTER),)


async def handle(request: DeleteShareGroupStateRequest, call: Call) -> DeleteShareGroupStateResponse:
    answered = await answer_all(request, lambda key, _: Deletion(key), call.services.share_coordinator.delete, call)
    return DeleteShareGroupStateResponse(results=rows(_topic, answered))


def _topic(topic: AnsweredTopic) -> DeleteStateResult:
    return DeleteStateResult(topic_id=topic.topic_id, partitions=rows(_partition, topic.partitions))


def _partition(answered: AnsweredPartition) -> PartitionResult:
    code, message = answered.answer.code, answered.answer.message
    return PartitionResult(partition=answered.partition, error_code=code, error_message=message)
