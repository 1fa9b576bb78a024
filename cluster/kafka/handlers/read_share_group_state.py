"""ReadShareGroupState (84): the stored state of share partitions, for their leaders (KIP-932).

A read fences the leaders of earlier leader epochs. A share partition without state gets one.
"""

from kio.schema.read_share_group_state.v0.request import ReadShareGroupStateRequest
from kio.schema.read_share_group_state.v0.response import PartitionResult, ReadShareGroupStateResponse, ReadStateResult
from kio.schema.read_share_group_state.v0.response import StateBatch as WireBatch

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.share_states import AnsweredPartition, AnsweredTopic, answer_all, read_of
from cordwood.cluster.share.states import StateBatch

KEY = ApiKey.READ_SHARE_GROUP_STATE
RIGHTS: Rights = (Right(CLUSTER_ACTION, CLUSTER),)


async def handle(request: ReadShareGroupStateRequest, call: Call) -> ReadShareGroupStateResponse:
    answered = await answer_all(request, read_of, call.services.share_coordinator.read, call)
    return ReadShareGroupStateResponse(results=rows(_topic, answered))


def _topic(topic: AnsweredTopic) -> ReadStateResult:
    return ReadStateResult(topic_id=topic.topic_id, partitions=rows(_partition, topic.partitions))


def _partition(answered: AnsweredPartition) -> PartitionResult:
    code, message = answered.answer.code, answered.answer.message
    state = answered.answer.state
    return PartitionResult(
        partition=answered.partition,
        error_code=code,
        error_message=message,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=rows(_batch, state.batches),
    )


def _batch(batch: StateBatch) -> WireBatch:
    return WireBatch(
        first_offset=batch.start,
        last_offset=batch.end - 1,
        delivery_state=int(batch.state),
        delivery_count=batch.delivery_count,
    )
