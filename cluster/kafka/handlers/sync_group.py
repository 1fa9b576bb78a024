"""SyncGroup (14): the group leader sends the partition assignment, and each member gets its own part.

Version notes: 5 requires the protocol type and name (KIP-559).
"""

from kio.schema.errors import ErrorCode
from kio.schema.sync_group.v5 import SyncGroupRequest, SyncGroupResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.exchange import Sync, SyncReply
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import GROUP, READ, Right, Rights

KEY = ApiKey.SYNC_GROUP
RIGHTS: Rights = (Right(READ, GROUP),)

_FIRST_WITH_PROTOCOL = 5


async def handle(request: SyncGroupRequest, call: Call) -> SyncGroupResponse:
    try:
        call.require(READ, GROUP, request.group_id)
        reply = await _sync(request, call)
    except Refused as refusal:
        reply = SyncReply(refusal.code)
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


async def _sync(request: SyncGroupRequest, call: Call) -> SyncReply:
    if call.version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise Refused(ErrorCode.inconsistent_group_protocol)
    sync = Sync(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={share.member_id: share.assignment async for share in call.turns.each(request.assignments)},
    )
    return await call.services.groups.sync(request.group_id, sync)
