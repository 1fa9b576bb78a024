"""CreatePartitions (37): adds partitions to topics. Internal topics are refused, as in CreateTopics.

Version notes: 3 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from collections import Counter

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.metadata.commands import Assignment, CreatePartitions
from cordwood.cluster.proposals.topics import PARTITIONS_PER_REQUEST_MAX, check_not_internal, more_partitions
from cordwood.storage.steps import Steps

KEY = ApiKey.CREATE_PARTITIONS
RIGHTS: Rights = (Right(ALTER, TOPIC),)

_FIRST_STRICT = 3


async def handle(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    times: Counter[str] = Counter()
    once: dict[str, CreatePartitionsTopic] = {}
    known, partitions = call.services.quorum.image.topics_by_name, 0
    permitted = await call.permitted(ALTER, TOPIC, (topic.name for topic in request.topics))
    async for topic in call.turns.each(request.topics):
        times[topic.name] += 1
        once[topic.name] = topic
        if topic.name in known and topic.name in permitted:
            partitions += max(0, topic.count - len(known[topic.name].partitions))

    async def result(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        code, message = ErrorCode.none, None
        try:
            if times[topic.name] > 1:
                raise Refused(ErrorCode.invalid_request, "Duplicate topic name.")
            if topic.name not in permitted:
                raise refusal_of(TOPIC)
            if partitions > PARTITIONS_PER_REQUEST_MAX:
                raise Refused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
            command = await call.turns.run(_command(topic, call))
            if not request.validate_only:
                call.count_mutations(len(command.assignments), _FIRST_STRICT)
                await propose(command, call)
        except Refused as refusal:
            code, message = refusal.code, refusal.message
        return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)

    results = await call.turns.gather(result, once.values())
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _command(topic: CreatePartitionsTopic, call: Call) -> Steps[CreatePartitions]:
    check_not_internal(topic.name)
    image = call.services.quorum.image
    known = image.topics_by_name.get(topic.name)
    if known is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Topic '{topic.name}' does not exist.")
    assignments: list[Assignment] | None = None
    if topic.assignments is not None:
        assignments = []
        for row in topic.assignments:
            assignments.append(tuple(row.broker_ids))
            yield
    return (yield from more_partitions(known, topic.count, assignments, image, call.services.rng))
