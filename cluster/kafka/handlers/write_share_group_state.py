"""WriteShareGroupState (85): changes of the state of share partitions, from their leaders (KIP-932).

Version notes: 1 adds the number of records whose delivery is complete (KIP-1226).
"""

from kio.schema.write_share_group_state.v1.request import WriteShareGroupStateRequest
from kio.schema.write_share_group_state.v1.response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.share_states import AnsweredPartition, AnsweredTopic, answer_all, change_of

KEY = ApiKey.WRITE_SHARE_GROUP_STATE
RIGHTS: Rights = (Right(CLUSTER_ACTION, CLUSTER),)


async def handle(request: WriteShareGroupStateRequest, call: Call) -> WriteShareGroupStateResponse:
    answered = await answer_all(request, change_of, call.services.share_coordinator.write, call)
    return WriteShareGroupStateResponse(results=rows(_topic, answered))


def _topic(topic: AnsweredTopic) -> WriteStateResult:
    return WriteStateResult(topic_id=topic.topic_id, partitions=rows(_partition, topic.partitions))


def _partition(answered: AnsweredPartition) -> PartitionResult:
    code, message = answered.answer.code, answered.answer.message
    return PartitionResult(partition=answered.partition, error_code=code, error_message=message)
