"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664)."""

from kio.schema.describe_producers.v0 import DescribeProducersRequest, DescribeProducersResponse
from kio.schema.describe_producers.v0.response import PartitionResponse, ProducerState, TopicResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.storage.producers import Producer

KEY, VERSIONS = ApiKey.DESCRIBE_PRODUCERS, range(1)

NO_COORDINATOR_EPOCH = -1


async def handle(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    topics = tuple(
        TopicResponse(
            name=topic.name, partitions=tuple(_partition(topic.name, index, call) for index in topic.partition_indexes)
        )
        for topic in request.topics
    )
    return DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=topics)


def _partition(topic: str, index: int, call: Call) -> PartitionResponse:
    try:
        partition = call.services.replicas.led(topic, index)
    except EXPECTED as error:
        return PartitionResponse(
            partition_index=index, error_code=code_of(error), error_message=str(error), active_producers=()
        )
    producers = tuple(_state(producer_id, producer) for producer_id, producer in partition.log.producers)
    return PartitionResponse(partition_index=index, error_code=ErrorCode.none, active_producers=producers)


def _state(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=NO_COORDINATOR_EPOCH,
    )
