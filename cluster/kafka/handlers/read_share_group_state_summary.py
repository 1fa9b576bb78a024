"""ReadShareGroupStateSummary (87): the start offsets of share groups on partitions (KIP-932).

Version notes: 1 adds the number of records whose delivery is complete (KIP-1226).
"""

from kio.schema.read_share_group_state_summary.v1.request import ReadShareGroupStateSummaryRequest
from kio.schema.read_share_group_state_summary.v1.response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.share_states import AnsweredPartition, AnsweredTopic, answer_all, read_of

KEY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
RIGHTS: Rights = (Right(CLUSTER_ACTION, CLUSTER),)


async def handle(request: ReadShareGroupStateSummaryRequest, call: Call) -> ReadShareGroupStateSummaryResponse:
    answered = await answer_all(request, read_of, call.services.share_coordinator.summarize, call)
    return ReadShareGroupStateSummaryResponse(results=rows(_topic, answered))


def _topic(topic: AnsweredTopic) -> ReadStateSummaryResult:
    return ReadStateSummaryResult(topic_id=topic.topic_id, partitions=rows(_partition, topic.partitions))


def _partition(answered: AnsweredPartition) -> PartitionResult:
    code, message = answered.answer.code, answered.answer.message
    state = answered.answer.state
    return PartitionResult(
        partition=answered.partition,
        error_code=code,
        error_message=message,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )
