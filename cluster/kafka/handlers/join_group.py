"""JoinGroup (11): a member joins a group, or its next generation in a rebalance. The response waits for all members.

Version notes: 0 has no rebalance timeout, the session timeout counts; 4 requires a member id first (KIP-394); 7 returns
a null protocol on an error, before it an empty one; 9 lets the leader skip the assignment (KIP-814).
"""

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.exchange import Join, JoinedMember, JoinReply, MemberProtocol
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import GROUP, READ, Right, Rights
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.JOIN_GROUP
RIGHTS: Rights = (Right(READ, GROUP),)
ITEMS_MAX = 100
"""Maximum number of protocols of a member: each is compared with those of all other members."""

_FIRST_WITH_KNOWN_ID = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9

_MILLISECOND = timedelta(milliseconds=1)


async def handle(request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
    try:
        call.require(READ, GROUP, request.group_id)
        reply = await call.services.groups.join(request.group_id, _join(request, call))
    except Refused as refusal:
        reply = JoinReply(refusal.code, request.member_id)
    has_null = call.version >= _FIRST_WITH_NULL_PROTOCOL
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if has_null else reply.protocol or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=rows(_member, reply.members),
    )


def _member(member: JoinedMember) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
    )


def _join(request: JoinGroupRequest, call: Call) -> Join:
    session_timeout_ms = request.session_timeout // _MILLISECOND
    # Version 0 has one timeout for both.
    rebalance_timeout_ms = request.rebalance_timeout // _MILLISECOND
    if request.group_instance_id == "":
        raise Refused(ErrorCode.invalid_request)
    return Join(
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        # The format of Java's InetAddress, which Kafka's tools expect.
        client_host=f"/{call.client_host}",
        reason=request.reason or "",
        must_know_id=call.version >= _FIRST_WITH_KNOWN_ID,
        may_skip_assignment=call.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
    )
