"""LeaveGroup (13): removes members from a group, on their own request or an administrator's.

Version notes: 3 takes several members, also by group instance id (KIP-345).
"""

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.exchange import Leaver
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.codec import upgrade_request as upgrade_by_name
from cordwood.cluster.kafka.rights import GROUP, READ, Right, Rights
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.LEAVE_GROUP
RIGHTS: Rights = (Right(READ, GROUP),)
ITEMS_MAX = 2000
"""Maximum number of members in a request: the group handles all of them in one step."""

_FIRST_WITH_MANY = 3


def upgrade_request(request: Any, version: int) -> LeaveGroupRequest:
    """Upgrade a request. Before version 3 it has one member."""
    if version >= _FIRST_WITH_MANY:
        upgraded: LeaveGroupRequest = upgrade_by_name(KEY, version, KEY.versions[-1])(request)
        return upgraded
    return LeaveGroupRequest(group_id=request.group_id, members=(MemberIdentity(member_id=request.member_id),))


def downgrade_response(response: LeaveGroupResponse, version: int) -> Any:
    if version >= _FIRST_WITH_MANY:
        return response
    code = next((member.error_code for member in response.members), response.error_code)
    return SimpleNamespace(throttle_time=response.throttle_time, error_code=code)


async def handle(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    leavers = [
        Leaver(member.member_id, member.group_instance_id, member.reason or "")
        async for member in call.turns.each(request.members)
    ]
    try:
        call.require(READ, GROUP, request.group_id)
        codes = await call.services.groups.leave(request.group_id, leavers)
    except Refused as refusal:
        return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=refusal.code, members=())
    return LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        members=rows(_left, list(zip(leavers, codes, strict=True))),
    )


def _left(outcome: tuple[Leaver, ErrorCode]) -> MemberResponse:
    leaver, code = outcome
    return MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code)
