"""ListGroups (16): the groups that this broker coordinates, filtered by state and type."""

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, GROUP, Right, Rights
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.LIST_GROUPS
RIGHTS: Rights = (
    Right(DESCRIBE, CLUSTER, "for all groups"),
    Right(DESCRIBE, GROUP, "other groups are left out of the list"),
)

ITEMS_MAX = 100
"""There are fewer states and types than this."""


async def handle(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    states = frozenset(state.lower() for state in request.states_filter)
    types = frozenset(type_.lower() for type_ in request.types_filter)
    try:
        known = call.services.groups.groups()
    except Refused as refusal:
        return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=refusal.code, groups=())
    may_see_all = call.may_see(DESCRIBE, CLUSTER)
    found = [
        group
        async for group in call.turns.each(known)
        if (may_see_all or call.may_see(DESCRIBE, GROUP, group.group_id))
        and (not states or group.state_name.lower() in states)
        and (not types or group.kind.value in types)
    ]
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=rows(_listed, found))


def _listed(group: AnyGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.kind.value,
    )
