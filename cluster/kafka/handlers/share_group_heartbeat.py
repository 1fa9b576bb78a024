"""ShareGroupHeartbeat (76): joins a share group, keeps the session of a member, assigns partitions, leaves (KIP-932).

The reply to a join waits up to 1 s for the share states of topics that the group reads for the first time, so that it
has partitions already. Kafka assigns them with the next heartbeat.
"""

from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import Assignment, ShareGroupHeartbeatResponse, TopicPartitions

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.heartbeat import HeartbeatReply, check_number_of_topics
from cordwood.cluster.groups.share.exchange import ShareHeartbeat
from cordwood.cluster.groups.target_assignment import Partitions
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, READ, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.SHARE_GROUP_HEARTBEAT
RIGHTS: Rights = (Right(READ, GROUP), Right(DESCRIBE, TOPIC, "for the topics of a subscription"))


async def handle(request: ShareGroupHeartbeatRequest, call: Call) -> ShareGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    try:
        call.require(READ, GROUP, request.group_id)
        check_number_of_topics(request.subscribed_topic_names)
        topics = None if names is None else await call.permitted(DESCRIBE, TOPIC, names)
        if names is not None and topics is not None and len(topics) < len(set(names)):
            raise refusal_of(TOPIC)
        heartbeat = ShareHeartbeat(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            topics=topics,
            rack_id=request.rack_id,
            client_id=call.client_id,
            client_host=call.client_host,
        )
        reply = await call.services.groups.shares.heartbeat(request.group_id, heartbeat)
    except Refused as refusal:
        reply = HeartbeatReply(refusal.code, refusal.message)
    has_assignment = reply.code is ErrorCode.none and reply.assignment is not None
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=reply.heartbeat_interval_ms),
        assignment=_assignment(reply.assignment or {}) if has_assignment else None,
    )


def _assignment(partitions: Partitions) -> Assignment:
    def topic_row(place: tuple[UUID, frozenset[int]]) -> TopicPartitions:
        return TopicPartitions(topic_id=place[0], partitions=tuple(sorted(place[1])))

    return Assignment(topic_partitions=rows(topic_row, list(partitions.items())))
