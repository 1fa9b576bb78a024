"""DescribeAcls: the ACLs that a filter finds, by resource pattern.

They are kept, and not enforced: this version has no authentication. Kafka without an authorizer keeps none and answers
SECURITY_DISABLED.
"""

from itertools import groupby

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.acl_filters import filter_of
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Refused
from cordwood.cluster.metadata.acls import Acl, ResourcePattern

KEY, VERSIONS = ApiKey.DESCRIBE_ACLS, range(1, 4)


async def handle(request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    code, message = ErrorCode.none, None
    resources: tuple[DescribeAclsResource, ...] = ()
    try:
        wanted = filter_of(request)
        found = sorted(acl for acl in call.services.quorum.image.acls.values() if wanted.matches(acl))
        resources = tuple(_resource(on, tuple(acls)) for on, acls in groupby(found, key=lambda acl: acl.on))
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return DescribeAclsResponse(throttle_time=NO_THROTTLE, error_code=code, error_message=message, resources=resources)


def _resource(on: ResourcePattern, acls: tuple[Acl, ...]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=int(on.resource),
        resource_name=on.name,
        pattern_type=int(on.pattern),
        acls=tuple(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in acls
        ),
    )
