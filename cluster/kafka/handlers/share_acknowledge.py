"""ShareAcknowledge (79): acknowledgements of the records that a member of a share group has acquired (KIP-932).

The answer comes once the share coordinator has stored it. A partition's acknowledgements count all or not at all.

Version notes: 2 adds the renewal of locks (KIP-1222), and the lock duration in the response.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import AcknowledgementBatch as WireBatch
from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.leader_hints import Leader
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, Right, Rights
from cordwood.cluster.kafka.share_lookup import (
    NotAnswered,
    PartitionAcks,
    acknowledge,
    leader_of,
    member_of,
    stored,
)
from cordwood.cluster.kafka.share_states import NO_ID
from cordwood.cluster.metadata.image import NO_LEADER
from cordwood.cluster.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, MemberKey
from cordwood.cluster.share.states import AcknowledgementBatch
from cordwood.storage.types import NO_EPOCH

KEY = ApiKey.SHARE_ACKNOWLEDGE
RIGHTS: Rights = (Right(READ, GROUP), Right(READ, TOPIC))

NO_LOCK = timedelta(0)
_NO_LEADER = LeaderIdAndEpoch(leader_id=NO_LEADER, leader_epoch=NO_EPOCH)


async def handle(request: ShareAcknowledgeRequest, call: Call) -> ShareAcknowledgeResponse:
    lock = timedelta(milliseconds=call.services.share.config_of(request.group_id or "").record_lock_ms)
    try:
        member = member_of(request.group_id, request.member_id, call)
        _use_session(member, request.share_session_epoch, call)
    except Refused as refusal:
        return ShareAcknowledgeResponse(
            throttle_time=NO_THROTTLE,
            error_code=refusal.code,
            error_message=refusal.message,
            acquisition_lock_timeout=NO_LOCK,
            responses=(),
            node_endpoints=(),
        )
    acks = [
        PartitionAcks(
            (topic.topic_id or NO_ID, row.partition_index), await batches_in(row.acknowledgement_batches, call)
        )
        async for topic, row in call.turns.within((topic, topic.partitions) for topic in request.topics)
    ]
    results = await acknowledge(member, acks, call, is_renewal=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        session = call.services.share.sessions.end(member)
        if session is not None:
            call.services.share.session_ended(session)
    return _response(acks, await stored(results), lock, call)


async def batches_in(batches: Sequence[WireBatch], call: Call) -> tuple[AcknowledgementBatch, ...]:
    """Return the acknowledgement batches of a request, of this API or ShareFetch."""
    return tuple(
        [
            AcknowledgementBatch(batch.first_offset, batch.last_offset + 1, tuple(batch.acknowledge_types))
            async for batch in call.turns.each(batches)
        ]
    )


def _use_session(member: MemberKey, epoch: int, call: Call) -> None:
    """Use the member's session, which ShareFetch has opened. Raises Refused."""
    if epoch == INITIAL_EPOCH:
        raise Refused(ErrorCode.invalid_share_session_epoch)
    call.services.share.sessions.use(member, epoch)


def _response(
    acks: Sequence[PartitionAcks], outcomes: Sequence[NotAnswered | None], lock: timedelta, call: Call
) -> ShareAcknowledgeResponse:
    topics: dict[Any, list[PartitionData]] = {}
    leaders: dict[int, Leader] = {}
    for (place, _), outcome in zip(acks, outcomes, strict=True):
        code, message = (ErrorCode.none, None) if outcome is None else outcome
        leader = leader_of(place, call) if code is ErrorCode.not_leader_or_follower else None
        if leader is not None:
            leaders[leader.broker_id] = leader
        row = PartitionData(
            partition_index=place[1],
            error_code=code,
            error_message=message,
            current_leader=_NO_LEADER
            if leader is None
            else LeaderIdAndEpoch(leader_id=leader.broker_id, leader_epoch=leader.epoch),
        )
        topics.setdefault(place[0], []).append(row)
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=lock,
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(rows))
            for topic_id, rows in topics.items()
        ),
        node_endpoints=tuple(map(_endpoint, leaders.values())),
    )


def _endpoint(leader: Leader) -> NodeEndpoint:
    endpoint = leader.endpoint
    return NodeEndpoint(node_id=leader.broker_id, host=endpoint.host, port=endpoint.port, rack=leader.rack)
