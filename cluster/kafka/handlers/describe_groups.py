"""DescribeGroups (15): the state, the protocol, the members and the assignments of groups.

Version notes: 6 adds GROUP_ID_NOT_FOUND for an unknown group, before it the state is Dead (KIP-1043).
"""

from collections.abc import Mapping
from functools import partial

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.classic.members import Member
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authorized import NOT_ASKED
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.steps import distinct

KEY = ApiKey.DESCRIBE_GROUPS
RIGHTS: Rights = (Right(DESCRIBE, GROUP),)

_FIRST_WITH_NOT_FOUND = 6


async def handle(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    asked = await call.turns.run(distinct(request.groups))
    has_operations = request.include_authorized_operations
    permitted = {
        group_id: call.operations(GROUP, group_id) if has_operations else NOT_ASKED
        async for group_id in call.turns.each(asked)
        if call.may(DESCRIBE, GROUP, group_id)
    }
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=rows(partial(_described, call, permitted), asked))


def _described(call: Call, permitted: Mapping[str, int], group_id: str) -> DescribedGroup:
    """Describe a group, with the authorized operations of each permitted one."""
    try:
        if group_id not in permitted:
            raise refusal_of(GROUP)
        group = call.services.groups.group(group_id)
    except Refused as refusal:
        return _absent(group_id, refusal.code, "", refusal.message)
    if not isinstance(group, ClassicGroup):
        # Groups of other kinds have requests of their own, as in Kafka.
        # Before version 6 an unknown group is a dead group.
        if call.version < _FIRST_WITH_NOT_FOUND:
            return _absent(group_id, ErrorCode.none, State.DEAD.value, None, permitted[group_id])
        return _absent(
            group_id, ErrorCode.group_id_not_found, State.DEAD.value, _missing(group_id, is_other=group is not None)
        )
    return DescribedGroup(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is State.STABLE else "",
        members=_members(group),
        authorized_operations=permitted[group_id],
    )


def _members(group: ClassicGroup) -> tuple[DescribedGroupMember, ...]:
    """Return the members, with the metadata for the protocol of a stable group."""
    protocol = group.protocol if group.state is State.STABLE else None

    def described(member: Member) -> DescribedGroupMember:
        return DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol),
            member_assignment=member.assignment,
        )

    return rows(described, list(group.members))


def _missing(group_id: str, *, is_other: bool) -> str:
    return f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."


def _absent(
    group_id: str, code: ErrorCode, state: str, message: str | None, operations: int = NOT_ASKED
) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )
