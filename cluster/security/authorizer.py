"""The decision about access: may this identity do this operation on this resource?"""

from typing import Protocol

from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.principal import Identity

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER, as in Kafka."""


class Authorizer(Protocol):
    """Decides by the newest ACLs. It never blocks, and costs no time that grows with the number of other ACLs."""

    @property
    def is_ready(self) -> bool:
        """Whether the ACLs are known. Before, every client but a super user is refused."""
        ...

    def may(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        """Return whether the identity may do the operation on the resource of that name."""
        ...

    def may_see(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        """Decide as `may` about a resource that the client has not named: if refused, it is left out of a list."""
        ...

    def may_any(self, identity: Identity, operation: AclOperation, resource: AclResource, /) -> bool:
        """Return whether the identity may do the operation on any resource of that type at all (KIP-679)."""
        ...

    def operations(self, identity: Identity, resource: AclResource, name: str, /) -> int:
        """Return the operations that the identity may do on the resource, as a bit set (KIP-430)."""
        ...


class OpenAccess:
    """Access without `authorizer.class.name`: every client may do everything."""

    is_ready = True

    def may(self, _identity: Identity, _operation: AclOperation, _resource: AclResource, _name: str, /) -> bool:
        return True

    may_see = may

    def may_any(self, _identity: Identity, _operation: AclOperation, _resource: AclResource, /) -> bool:
        return True

    def operations(self, _identity: Identity, resource: AclResource, _name: str, /) -> int:
        return OPERATIONS_ON[resource]


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_Op = AclOperation
OPERATIONS_ON = {
    AclResource.TOPIC: _bits(
        _Op.READ,
        _Op.WRITE,
        _Op.CREATE,
        _Op.DELETE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    AclResource.GROUP: _bits(_Op.READ, _Op.DELETE, _Op.DESCRIBE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
    AclResource.CLUSTER: _bits(
        _Op.CREATE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.CLUSTER_ACTION,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
    ),
    AclResource.TRANSACTIONAL_ID: _bits(_Op.WRITE, _Op.DESCRIBE),
    AclResource.DELEGATION_TOKEN: _bits(_Op.DESCRIBE),
    AclResource.USER: _bits(_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
}
"""The operations that exist on each type of resource."""

OPEN_ACCESS = OpenAccess()


def acts_as_broker(authorizer: Authorizer, identity: Identity) -> bool:
    """Return whether an identity may do what only brokers do: replicate, and send requests on behalf of users."""
    return authorizer.may(identity, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME)
