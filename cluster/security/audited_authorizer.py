"""An authorizer that records every refusal in the audit log."""

from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.audit.event import AuditEvent
from cordwood.cluster.security.audit.log import AuditSink
from cordwood.cluster.security.authorizer import Authorizer
from cordwood.cluster.security.principal import Identity

DENIED = "DENIED"
"""The outcome of an event about a refusal by the authorizer."""


class AuditedAuthorizer:
    """The decisions of another authorizer.

    Refusals are audit events; entries that are left out of a list are not refused.
    """

    def __init__(self, authorizer: Authorizer, audit: AuditSink) -> None:
        self._authorizer, self._audit = authorizer, audit
        self.may_see, self.operations = authorizer.may_see, authorizer.operations

    @property
    def is_ready(self) -> bool:
        """Whether the ACLs are known."""
        return self._authorizer.is_ready

    def may(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        """Return whether the identity may do the operation on the resource of that name."""
        if self._authorizer.may(identity, operation, resource, name):
            return True
        self._note(identity, operation, f"{resource.name}:{name}")
        return False

    def may_any(self, identity: Identity, operation: AclOperation, resource: AclResource, /) -> bool:
        """Return whether the identity may do the operation on any resource of that type at all."""
        if self._authorizer.may_any(identity, operation, resource):
            return True
        self._note(identity, operation, f"{resource.name}:any")
        return False

    def _note(self, identity: Identity, operation: AclOperation, resource: str) -> None:
        self._audit.note(AuditEvent(operation.name, identity, resource, DENIED, is_refusal=True))
