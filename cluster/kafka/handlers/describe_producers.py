"""DescribeProducers (61): the producer state of partitions: id, epoch, last sequence number, transaction (KIP-664)."""

from functools import partial

from kio.schema.describe_producers.v0 import DescribeProducersRequest, DescribeProducersResponse
from kio.schema.describe_producers.v0.response import PartitionResponse, ProducerState, TopicResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import READ, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.proposals.topics import check_name
from cordwood.storage.producers import ProducerStateEntry

KEY = ApiKey.DESCRIBE_PRODUCERS
RIGHTS: Rights = (Right(READ, TOPIC),)


async def handle(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    asked = await call.turns.run(by_topic((topic.name, topic.partition_indexes) for topic in request.topics))

    permitted = await call.permitted(READ, TOPIC, asked)

    def topic_row(name: str) -> TopicResponse:
        partition = partial(_partition, call, name) if name in permitted else partial(_refused, refusal_of(TOPIC))
        try:
            check_name(name)
        except Refused as refusal:
            partition = partial(_refused, refusal)
        return TopicResponse(name=name, partitions=rows(partition, asked[name]))

    return DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, asked))


def _refused(refusal: Refused, index: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=refusal.code, error_message=refusal.message, active_producers=()
    )


def _partition(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        partition = call.services.replicas.led(topic, index)
    except EXPECTED as error:
        return PartitionResponse(
            partition_index=index, error_code=code_of(error), error_message=str(error), active_producers=()
        )
    producers = rows(_state, list(partition.log.producers))
    return PartitionResponse(partition_index=index, error_code=ErrorCode.none, active_producers=producers)


def _state(known: tuple[int, ProducerStateEntry]) -> ProducerState:
    producer_id, producer = known
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_transaction_first_offset,
    )
