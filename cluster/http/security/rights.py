"""Rights that HTTP requests require: the same as those of the Kafka requests for the same purpose."""

from collections.abc import Mapping
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.authorizer import CLUSTER_NAME


class RouteRight(NamedTuple):
    """An operation on a resource. `parameter` is the parameter of the path that has the resource's name."""

    operation: AclOperation
    resource: AclResource
    parameter: str = ""

    def name_in(self, path: Mapping[str, str]) -> str:
        """Return the name of the resource for a request to this path."""
        return CLUSTER_NAME if self.resource is AclResource.CLUSTER else path[self.parameter]

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource.name}"


_Op, _On = AclOperation, AclResource

DESCRIBE_CLUSTER = RouteRight(_Op.DESCRIBE, _On.CLUSTER)
ALTER_CLUSTER = RouteRight(_Op.ALTER, _On.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = RouteRight(_Op.DESCRIBE_CONFIGS, _On.CLUSTER)
ALTER_CLUSTER_CONFIGS = RouteRight(_Op.ALTER_CONFIGS, _On.CLUSTER)
CREATE_TOPIC = RouteRight(_Op.CREATE, _On.TOPIC, "topic")
DESCRIBE_TOPIC = RouteRight(_Op.DESCRIBE, _On.TOPIC, "topic")
ALTER_TOPIC = RouteRight(_Op.ALTER, _On.TOPIC, "topic")
DELETE_TOPIC = RouteRight(_Op.DELETE, _On.TOPIC, "topic")
READ_TOPIC = RouteRight(_Op.READ, _On.TOPIC, "topic")
WRITE_TOPIC = RouteRight(_Op.WRITE, _On.TOPIC, "topic")
DESCRIBE_TOPIC_CONFIGS = RouteRight(_Op.DESCRIBE_CONFIGS, _On.TOPIC, "topic")
ALTER_TOPIC_CONFIGS = RouteRight(_Op.ALTER_CONFIGS, _On.TOPIC, "topic")
DESCRIBE_GROUP = RouteRight(_Op.DESCRIBE, _On.GROUP, "group")
READ_GROUP = RouteRight(_Op.READ, _On.GROUP, "group")
DELETE_GROUP = RouteRight(_Op.DELETE, _On.GROUP, "group")
DESCRIBE_GROUP_CONFIGS = RouteRight(_Op.DESCRIBE_CONFIGS, _On.GROUP, "group")
ALTER_GROUP_CONFIGS = RouteRight(_Op.ALTER_CONFIGS, _On.GROUP, "group")
DESCRIBE_TRANSACTION = RouteRight(_Op.DESCRIBE, _On.TRANSACTIONAL_ID, "transactional_id")

CODES = {
    AclResource.TOPIC: ErrorCode.topic_authorization_failed,
    AclResource.GROUP: ErrorCode.group_authorization_failed,
    AclResource.CLUSTER: ErrorCode.cluster_authorization_failed,
    AclResource.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
"""The error code of a refusal, by the type of the resource."""

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/", "/login", "/console/{file}"})
"""Paths outside the API that are served without a login. `/` itself sends a client without a login to `/login`."""

OPEN_ROUTES = frozenset({("POST", "/v1/login")})
"""Routes of the API that are served without a login."""

METRICS_PATH = "/metrics"
RIGHTS_OF_PATHS: Mapping[str, tuple[RouteRight, ...]] = {
    METRICS_PATH: (DESCRIBE_CLUSTER,),
    "/v1/status": (DESCRIBE_CLUSTER,),
    "/console/pulse": (DESCRIBE_CLUSTER,),
    "/openapi.json": (),
}
"""The rights for the other paths outside the API; without a right, any login is enough."""
