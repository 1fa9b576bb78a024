"""Access control of a broker by ACLs."""

from collections.abc import Callable

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.super_users import super_users_of
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.security.acl_authorizer import AclAuthorizer
from cordwood.cluster.security.audit.log import AuditSink
from cordwood.cluster.security.audited_authorizer import AuditedAuthorizer
from cordwood.cluster.security.authorizer import acts_as_broker
from cordwood.cluster.security.principal import Identity

CloseBrokers = Callable[[Callable[[Identity], bool]], None]
"""Closes the connections of those followers of which the function returns false."""


class AclAccess:
    """The authorizer of a broker, which follows the ACLs in the metadata."""

    def __init__(self, acls: AclAuthorizer, audit: AuditSink) -> None:
        self._acls = acls
        self.authorizer = AuditedAuthorizer(acls, audit)

    @classmethod
    def of(cls, settings: Settings, audit: AuditSink) -> "AclAccess | None":
        """Return the access control that the settings ask for; None if every client may do everything."""
        if not settings.authorizer_class_name:
            return None
        allows = settings.allow_everyone_if_no_acl_found
        return cls(AclAuthorizer(super_users_of(settings), allows_if_no_acl=allows), audit)

    def enforce(self, quorum: Quorum, close_brokers: CloseBrokers) -> None:
        """Decide by the ACLs from here on. Until then everyone but super users is refused.

        Call it after the broker's registration, which is applied after all ACLs that were created before it.
        """
        self._acls.begin(quorum.image.acls)
        quorum.subscribe(self._acls.on_metadata_change)

        def check_brokers(old: Image, new: Image) -> None:
            if old.acls is not new.acls:
                close_brokers(lambda identity: acts_as_broker(self.authorizer, identity))

        quorum.subscribe(check_brokers)
