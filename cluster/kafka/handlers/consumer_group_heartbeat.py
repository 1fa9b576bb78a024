"""ConsumerGroupHeartbeat (68): joins a consumer group, renews a session, reports partitions, leaves (KIP-848).

Version notes: 1 adds regular expressions, and the client makes its member id (KIP-1082).
"""

from datetime import timedelta
from functools import partial
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat
from cordwood.cluster.groups.heartbeat import HeartbeatReply, check_number_of_topics
from cordwood.cluster.groups.target_assignment import Partitions
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, READ, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
RIGHTS: Rights = (
    Right(READ, GROUP),
    Right(DESCRIBE, TOPIC, "for each subscribed name; a regular expression leaves other topics out"),
)

_FIRST_WITH_CLIENT_IDS = 1
_MILLISECOND = timedelta(milliseconds=1)


async def handle(request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerGroupHeartbeatResponse:
    try:
        call.require(READ, GROUP, request.group_id)
        check_number_of_topics(request.subscribed_topic_names)
        heartbeat = await _heartbeat(request, call)
        reply = await call.services.groups.consumers.heartbeat(request.group_id, heartbeat)
    except Refused as refusal:
        reply = HeartbeatReply(refusal.code, refusal.message, request.member_id, request.member_epoch)
    is_refused = reply.code is not ErrorCode.none
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        error_message=reply.message,
        member_id=None if is_refused else reply.member_id,
        member_epoch=0 if is_refused else reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=reply.heartbeat_interval_ms),
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )


async def _heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerHeartbeat:
    """Return the request as the group takes it. Raises Refused for a topic that the client may not describe."""
    names = request.subscribed_topic_names
    if names is not None:
        async for name in call.turns.each(names):
            if not call.may(DESCRIBE, TOPIC, name):
                raise refusal_of(TOPIC)
    owned = None
    if request.topic_partitions is not None:
        owned = {}
        async for topic in call.turns.each(request.topic_partitions):
            if topic.topic_id is not None and topic.partitions:
                owned[topic.topic_id] = frozenset(topic.partitions)
    return ConsumerHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout // _MILLISECOND,
        topics=None if names is None else frozenset(names),
        regex=request.subscribed_topic_regex if call.version >= _FIRST_WITH_CLIENT_IDS else None,
        assignor=request.server_assignor,
        owned=owned,
        client_id=call.client_id,
        # The format of Java's InetAddress, which Kafka's tools expect.
        client_host=f"/{call.client_host}",
        makes_id=call.version >= _FIRST_WITH_CLIENT_IDS,
        may_describe=partial(call.may_see, DESCRIBE, TOPIC),
    )


def _assignment(partitions: Partitions) -> Assignment:
    def topic_row(place: tuple[UUID, frozenset[int]]) -> TopicPartitions:
        return TopicPartitions(topic_id=place[0], partitions=tuple(sorted(place[1])))

    return Assignment(topic_partitions=rows(topic_row, list(partitions.items())))
