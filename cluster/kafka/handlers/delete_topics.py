"""DeleteTopics (20): deletes topics by name or by id.

Internal topics are refused with INVALID_TOPIC_EXCEPTION. Kafka deletes them, and with `__consumer_offsets` every group
loses its committed offsets.

Version notes: 3 adds TOPIC_DELETION_DISABLED in place of INVALID_REQUEST (KIP-322); 5 adds THROTTLING_QUOTA_EXCEEDED
(KIP-599); 6 takes topics by id (KIP-516).
"""

from collections import Counter
from typing import Any
from uuid import UUID

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import CLUSTER, DELETE, DESCRIBE, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.commands import DeleteTopic
from cordwood.cluster.metadata.image import Image, TopicImage
from cordwood.cluster.proposals.topics import check_not_internal

KEY = ApiKey.DELETE_TOPICS
RIGHTS: Rights = (
    Right(DELETE, CLUSTER, "or DELETE on each topic"),
    Right(DELETE, TOPIC, "or DELETE on the cluster"),
    Right(DESCRIBE, TOPIC, "without it, a topic that does not exist is refused too, and an id gets no name"),
)

_FIRST_WITH_DISABLED_CODE, _FIRST_STRICT = 3, 5


def upgrade_request(request: Any, version: int) -> DeleteTopicsRequest:  # noqa: ARG001
    """Upgrade a request. Before version 6 the topics are a list of names."""
    topics = rows(lambda name: DeleteTopicState(name=name, topic_id=None), request.topic_names)
    return DeleteTopicsRequest(topics=topics, timeout=request.timeout)


async def handle(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    times: Counter[str | UUID | None] = Counter()
    once: dict[str | UUID | None, DeleteTopicState] = {}
    async for topic in call.turns.each(request.topics):
        times[topic.name or topic.topic_id] += 1
        once[topic.name or topic.topic_id] = topic

    image = call.services.quorum.image
    async for topic in call.turns.each(list(once.values())):
        known = None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)
        if topic.name is None and known is not None and once.pop(known.name, None):
            # As in Kafka, neither counts of a name and an id of the same topic.
            times[topic.topic_id] += 1

    may_delete_all = call.may_see(DELETE, CLUSTER)

    async def result(topic: DeleteTopicState) -> DeletableTopicResult:
        known = None
        try:
            _check(topic, times[topic.name or topic.topic_id], call)
            if topic.name is not None and not may_delete_all:
                call.require(DESCRIBE, TOPIC, topic.name)
            found = _find(topic, call.services.quorum.image)
            if not (may_delete_all or call.may(DELETE, TOPIC, found.name)):
                # A topic that the client names by id gets no name, and one that it names by name no id.
                known = found if topic.name is None and call.may_see(DESCRIBE, TOPIC, found.name) else None
                raise refusal_of(TOPIC)
            known = found
            check_not_internal(known.name)
            call.count_mutations(len(known.partitions), _FIRST_STRICT)
            await propose(DeleteTopic(known.id), call)
        except Refused as refusal:
            return _result(topic, known, refusal.code, refusal.message)
        return _result(topic, known, ErrorCode.none, None)

    results = await call.turns.gather(result, once.values())
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))


def _check(topic: DeleteTopicState, times: int, call: Call) -> None:
    if not call.services.settings.delete_topic_enable:
        disabled = call.version >= _FIRST_WITH_DISABLED_CODE
        raise Refused(
            ErrorCode.topic_deletion_disabled if disabled else ErrorCode.invalid_request,
            "delete.topic.enable is false on this broker.",
        )
    if topic.name is None and topic.topic_id is None:
        raise Refused(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if topic.name is not None and topic.topic_id is not None:
        raise Refused(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if times > 1:
        what = "id" if topic.name is None else "name"
        raise Refused(ErrorCode.invalid_request, f"Duplicate topic {what}.")


def _find(topic: DeleteTopicState, image: Image) -> TopicImage:
    if topic.topic_id is None:
        known = image.topics_by_name.get(topic.name)
        code = ErrorCode.unknown_topic_or_partition
    else:
        known = image.topics_by_id.get(topic.topic_id)
        code = ErrorCode.unknown_topic_id
    if known is None:
        raise Refused(code, "This server does not host this topic.")
    return known


def _result(
    topic: DeleteTopicState, known: TopicImage | None, code: ErrorCode, message: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name if known is None else known.name,
        topic_id=topic.topic_id if known is None else known.id,
        error_code=code,
        error_message=message,
    )
