"""Rights that requests require: their declaration by each API's module, and the refusal of a request without them."""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.acls import AclOperation, AclResource

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
CREATE_TOKENS, DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID
DELEGATION_TOKEN, USER = AclResource.DELEGATION_TOKEN, AclResource.USER

_ERRORS = {
    TOPIC: (ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    CLUSTER: (ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (ErrorCode.transactional_id_authorization_failed, "Transactional Id authorization failed."),
    DELEGATION_TOKEN: (ErrorCode.delegation_token_authorization_failed, "Delegation Token authorization failed."),
    USER: (ErrorCode.delegation_token_authorization_failed, "Delegation Token authorization failed."),
}


class Right(NamedTuple):
    """An operation on a type of resource that a request to an API requires: one row of the table in the docs."""

    operation: AclOperation
    resource: AclResource
    condition: str = ""
    """When the right is required, and the answer to a client without it in place of an error; empty for always."""


Rights = tuple[Right, ...]


def refusal_of(resource: AclResource) -> Refused:
    """Return Kafka's error of a request without a right on this type of resource."""
    return Refused(*_ERRORS[resource])
