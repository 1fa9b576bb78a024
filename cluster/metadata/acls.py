"""Access control lists and ACL filters (KIP-11, KIP-290). `cluster/security/acl_authorizer.py` decides by them."""

from dataclasses import dataclass
from enum import IntEnum

WILDCARD = "*"
"""The name of a literal pattern that matches every resource."""


class AclResource(IntEnum):
    """Kafka's ACL resource types, by number. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """Kafka's resource pattern types, by number. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's ACL operations, by number. ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Kafka's ACL permission types, by number. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources of one type that match a name."""

    resource: AclResource
    name: str
    pattern: Pattern


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An ACL: allows or denies `principal` ("User:alice") `operation` from `host`: an address, a network, or "*"."""

    on: ResourcePattern
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def sort_key(self) -> tuple[object, ...]:
        """Return what ACLs are sorted by: thousands of these are compared sooner than of the objects."""
        on = self.on
        return (on.resource, on.name, on.pattern, self.principal, self.host, self.operation, self.permission)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs. None for a text matches every text."""

    resource: AclResource
    name: str | None
    pattern: Pattern
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter matches `acl`. Texts are compared literally: the filter "*" matches only "*"."""
        return (
            self._matches_resources(acl.on)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_resources(self, on: ResourcePattern) -> bool:
        """Return whether the filter matches a pattern.

        ANY compares only the name. MATCH finds every pattern that covers the resource of that name.
        """
        if self.resource not in (AclResource.ANY, on.resource):
            return False
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, on.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not Pattern.MATCH:
            return self.name == on.name
        if on.pattern is Pattern.PREFIXED:
            return self.name.startswith(on.name)
        return on.name in (self.name, WILDCARD)
