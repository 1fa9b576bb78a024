"""ACL filters and resources as requests carry them: numbers that have to be known, and what follows from them."""

from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.call import Refused
from cordwood.cluster.metadata.acls import AclFilter, AclResource, Operation, Pattern, Permission


def filter_of(wanted: Any) -> AclFilter:
    """The filter of a DescribeAcls request, or one of those of DeleteAcls. Raises Refused."""
    try:
        return AclFilter(
            AclResource(wanted.resource_type_filter),
            wanted.resource_name_filter,
            Pattern(wanted.pattern_type_filter),
            wanted.principal_filter,
            wanted.host_filter,
            Operation(wanted.operation),
            Permission(wanted.permission_type),
        )
    except ValueError as error:
        raise Refused(ErrorCode.invalid_request, f"The filter has an unknown element: {error}.") from None
