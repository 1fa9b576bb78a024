"""DeleteAcls (31): deletes the ACLs that match any filter, in one command, and returns the matches of each filter."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.acl_filters import filter_of
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.commands import DeleteAcls
from cordwood.storage.steps import Steps, in_order

KEY = ApiKey.DELETE_ACLS
RIGHTS: Rights = (Right(ALTER, CLUSTER),)
ITEMS_MAX = 5000
"""Maximum number of filters in a request: each is compared with every ACL."""

_Found = dict[UUID, Acl]


async def handle(request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    acls = call.services.quorum.image.acls
    failure = None if call.may(ALTER, CLUSTER) else refusal_of(CLUSTER)
    asked = request.filters if failure is None else ()
    found = {wanted: await _find(wanted, acls, call) async for wanted in call.turns.each(asked)}
    try:
        ids = await call.turns.run(_ids(found.values()))
        if ids:
            await propose(DeleteAcls(tuple(ids)), call)
    except Refused as refusal:
        failure = refusal

    def result(wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
        return _result(failure or found[wanted])

    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=rows(result, request.filters))


async def _find(wanted: DeleteAclsFilter, acls: Mapping[UUID, Acl], call: Call) -> _Found | Refused:
    """Return the ACLs that match a filter, sorted; or the refusal of an invalid filter."""
    try:
        matches = filter_of(wanted).matches
    except Refused as refusal:
        return refusal
    found = [(acl_id, acl) async for acl_id, acl in call.turns.each(acls.items()) if matches(acl)]
    return dict(await call.turns.run(in_order(found, key=_sort_key)))


def _sort_key(found: tuple[UUID, Acl]) -> tuple[object, ...]:
    return found[1].sort_key()


def _ids(found: Iterable[_Found | Refused]) -> Steps[list[UUID]]:
    """Return the distinct ids of all that was found."""
    ids: dict[UUID, None] = {}
    for acls in found:
        yield
        for acl_id in () if isinstance(acls, Refused) else acls:
            ids[acl_id] = None
            yield
    return list(ids)


def _result(found: _Found | Refused) -> DeleteAclsFilterResult:
    if isinstance(found, Refused):
        return DeleteAclsFilterResult(error_code=found.code, error_message=found.message, matching_acls=())
    return DeleteAclsFilterResult(
        error_code=ErrorCode.none, error_message=None, matching_acls=rows(_matching, found.values())
    )


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
