"""DeleteGroups (42): deletes groups without members, with their committed offsets."""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DELETE, GROUP, Right, Rights
from cordwood.storage.steps import distinct

KEY = ApiKey.DELETE_GROUPS
RIGHTS: Rights = (Right(DELETE, GROUP),)


async def handle(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    async def result(group_id: str) -> DeletableGroupResult:
        code = ErrorCode.none
        try:
            call.require(DELETE, GROUP, group_id)
            await call.services.groups.delete_group(group_id)
        except Refused as refusal:
            code = refusal.code
        return DeletableGroupResult(group_id=group_id, error_code=code)

    once = await call.turns.run(distinct(request.groups_names))
    results = await call.turns.gather(result, once)
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))
