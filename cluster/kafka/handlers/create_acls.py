"""CreateAcls (30): creates ACLs, the valid ones in commands of up to 500; creating an existing ACL changes nothing.

Without `authorizer.class.name`, ACLs are stored and not enforced, so that they can be created before a cluster is
closed. Kafka without an authorizer stores none and answers SECURITY_DISABLED.
"""

import random
from collections.abc import Collection
from uuid import UUID

import structlog
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.commands import CreateAcls
from cordwood.cluster.security.acl_authorizer import BadHost, host_key
from cordwood.cluster.security.authorizer import CLUSTER_NAME
from cordwood.storage.steps import distinct

KEY = ApiKey.CREATE_ACLS
RIGHTS: Rights = (Right(ALTER, CLUSTER),)
ITEMS_MAX = 5000
"""Maximum number of ACLs in a request."""
ACLS_PER_COMMAND = 500
"""Maximum number of new ACLs in a command, which every broker applies in one step."""

_events = structlog.get_logger("acls")


async def handle(request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    refusal = None if call.may(ALTER, CLUSTER) else refusal_of(CLUSTER)
    checked = [refusal or _checked(creation) async for creation in call.turns.each(request.creations)]
    wanted = await call.turns.run(distinct(acl for acl in checked if isinstance(acl, Acl)))
    failure = None
    try:
        await _create(wanted, call)
    except Refused as refusal:
        failure = refusal

    def result(acl: Acl | Refused) -> AclCreationResult:
        return _result(acl if isinstance(acl, Refused) else failure)

    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=rows(result, checked))


async def _create(wanted: Collection[Acl], call: Call) -> None:
    taken = call.services.quorum.image.acls
    known = {acl async for acl in call.turns.each(taken.values())}
    acls = [(_new_id(taken, call.services.rng), acl) async for acl in call.turns.each(wanted) if acl not in known]
    if not acls:
        return
    for start in range(0, len(acls), ACLS_PER_COMMAND):
        await propose(CreateAcls(tuple(acls[start : start + ACLS_PER_COMMAND])), call)
    if call.services.settings.authorizer_class_name:
        _events.info("acls.created", count=len(acls))
    else:
        _events.warning("acls.created", count=len(acls), enforced="no: authorizer.class.name is not set")


def _checked(creation: AclCreation) -> Acl | Refused:
    try:
        acl = _acl(creation)
    except ValueError as error:
        return Refused(ErrorCode.invalid_request, f"The ACL has an unknown element: {error}.")
    if acl.on.resource is AclResource.ANY:
        return Refused(ErrorCode.invalid_request, "Invalid resourceType ANY")
    if acl.on.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        return Refused(ErrorCode.invalid_request, f"Invalid patternType {acl.on.pattern.name}")
    if acl.operation is AclOperation.ANY:
        return Refused(ErrorCode.invalid_request, "Invalid operation ANY")
    if acl.permission is Permission.ANY:
        return Refused(ErrorCode.invalid_request, "Invalid permissionType ANY")
    if not acl.on.name or not acl.host:
        what = "Host" if acl.on.name else "Resource name"
        return Refused(ErrorCode.invalid_request, f"{what} should not be empty")
    if acl.on.resource is AclResource.CLUSTER and acl.on.name != CLUSTER_NAME:
        return Refused(ErrorCode.invalid_request, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in acl.principal:
        message = f"Could not parse principal from `{acl.principal}`: write it as type:name, such as User:alice."
        return Refused(ErrorCode.invalid_request, message)
    try:
        host_key(acl.host)
    except BadHost as error:
        return Refused(ErrorCode.invalid_request, f"Invalid host: {error}.")
    return acl


def _acl(creation: AclCreation) -> Acl:
    on = ResourcePattern(
        AclResource(creation.resource_type), creation.resource_name, Pattern(creation.resource_pattern_type)
    )
    operation, permission = AclOperation(creation.operation), Permission(creation.permission_type)
    return Acl(on, creation.principal, creation.host, operation, permission)


def _new_id(taken: Collection[UUID], rng: random.Random) -> UUID:
    while (acl_id := UUID(int=rng.getrandbits(128), version=4)) in taken:
        pass
    return acl_id


def _result(refusal: Refused | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult(error_code=ErrorCode.none, error_message=None)
    return AclCreationResult(error_code=refusal.code, error_message=refusal.message)
