"""DescribeAcls (29): the ACLs that match a filter, by resource pattern.

Without `authorizer.class.name`, they are stored and not enforced. Kafka without an authorizer stores none and answers
SECURITY_DISABLED.
"""

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.acl_filters import filter_of
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.acls import Acl, ResourcePattern
from cordwood.storage.steps import in_order

KEY = ApiKey.DESCRIBE_ACLS
RIGHTS: Rights = (Right(DESCRIBE, CLUSTER),)


async def handle(request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    code, message = ErrorCode.none, None
    resources: tuple[DescribeAclsResource, ...] = ()
    try:
        call.require(DESCRIBE, CLUSTER)
        wanted = filter_of(request)
        found = [acl async for acl in call.turns.each(call.services.quorum.image.acls.values()) if wanted.matches(acl)]
        ordered = await call.turns.run(in_order(found, key=Acl.sort_key))
        by_resource: dict[ResourcePattern, list[Acl]] = {}
        async for acl in call.turns.each(ordered):
            by_resource.setdefault(acl.on, []).append(acl)
        resources = rows(_resource, by_resource.items())
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return DescribeAclsResponse(throttle_time=NO_THROTTLE, error_code=code, error_message=message, resources=resources)


def _resource(found: tuple[ResourcePattern, list[Acl]]) -> DescribeAclsResource:
    on, acls = found
    return DescribeAclsResource(
        resource_type=int(on.resource),
        resource_name=on.name,
        pattern_type=int(on.pattern),
        acls=rows(_description, acls),
    )


def _description(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
