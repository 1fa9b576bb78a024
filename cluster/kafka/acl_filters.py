"""Decoding and validation of the ACL filters of DescribeAcls and DeleteAcls."""

from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.acls import AclFilter, AclOperation, AclResource, Pattern, Permission


def filter_of(wanted: Any) -> AclFilter:
    """Decode the filter of a DescribeAcls request, or one filter of a DeleteAcls request. Raises Refused."""
    try:
        return AclFilter(
            AclResource(wanted.resource_type_filter),
            wanted.resource_name_filter,
            Pattern(wanted.pattern_type_filter),
            wanted.principal_filter,
            wanted.host_filter,
            AclOperation(wanted.operation),
            Permission(wanted.permission_type),
        )
    except ValueError as error:
        raise Refused(ErrorCode.invalid_request, f"The filter has an unknown element: {error}.") from None
