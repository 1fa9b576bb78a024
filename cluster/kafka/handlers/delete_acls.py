"""DeleteAcls: what any of the filters finds, in one command. What several find is told under each of them."""

from uuid import UUID

from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.acl_filters import filter_of
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Refused
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.commands import DeleteAcls

KEY, VERSIONS = ApiKey.DELETE_ACLS, range(1, 4)

_Found = dict[UUID, Acl]


async def handle(request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    found = [_find(wanted, call) for wanted in request.filters]
    failure = None
    try:
        ids = dict.fromkeys(acl_id for acls in found if not isinstance(acls, Refused) for acl_id in acls)
        if ids:
            await propose(DeleteAcls(tuple(ids)), call)
    except Refused as refusal:
        failure = refusal
    return DeleteAclsResponse(
        throttle_time=NO_THROTTLE, filter_results=tuple(_result(failure or acls) for acls in found)
    )


def _find(wanted: object, call: Call) -> _Found | Refused:
    try:
        matches = filter_of(wanted).matches
    except Refused as refusal:
        return refusal
    return {acl_id: acl for acl_id, acl in call.services.quorum.image.acls.items() if matches(acl)}


def _result(found: _Found | Refused) -> DeleteAclsFilterResult:
    if isinstance(found, Refused):
        return DeleteAclsFilterResult(error_code=found.code, error_message=found.message, matching_acls=())
    matching = tuple(map(_matching, sorted(found.values())))
    return DeleteAclsFilterResult(error_code=ErrorCode.none, error_message=None, matching_acls=matching)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=int(acl.on.resource),
        resource_name=acl.on.name,
        pattern_type=int(acl.on.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
