"""Heartbeat (12): keeps a group member's session alive; REBALANCE_IN_PROGRESS makes the member rejoin."""

from kio.schema.heartbeat.v4 import HeartbeatRequest, HeartbeatResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import MemberIdentity
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import GROUP, READ, Right, Rights

KEY = ApiKey.HEARTBEAT
RIGHTS: Rights = (Right(READ, GROUP),)


async def handle(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    member = MemberIdentity(request.member_id, request.generation_id, request.group_instance_id)
    try:
        call.require(READ, GROUP, request.group_id)
        code = call.services.groups.heartbeat(request.group_id, member)
    except Refused as refusal:
        code = refusal.code
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)
