"""Access control lists: who may or may not do what to which resources, and filters to find them (KIP-11, KIP-290).

They are kept and told, and not enforced: without authentication there is nobody to tell from anybody else.
"""

from dataclasses import dataclass
from enum import IntEnum

WILDCARD = "*"
"""As the name of a literal pattern: any resource."""


class AclResource(IntEnum):
    """What an ACL is about, by Kafka's numbers. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a name stands for resources, by Kafka's numbers. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done to a resource, by Kafka's numbers. ANY is for filters only."""

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
    """By Kafka's numbers. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources of one type that a name stands for."""

    resource: AclResource
    name: str
    pattern: Pattern


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """`principal` ("User:alice") may or may not do `operation` from `host`, which is an address or "*"."""

    on: ResourcePattern
    principal: str
    host: str
    operation: Operation
    permission: Permission


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs are meant. None in the place of a text stands for every one."""

    resource: AclResource
    name: str | None
    pattern: Pattern
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Texts are compared as they are: the filter "*" finds what was made for "*", and nothing else."""
        return (
            self._matches_resources(acl.on)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_resources(self, on: ResourcePattern) -> bool:
        """ANY compares the name alone; MATCH finds every pattern that the resource of that name falls under."""
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
