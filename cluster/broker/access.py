"""The authorizer of a broker, from its settings."""

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.super_users import super_users_of
from cordwood.cluster.security.acl_authorizer import AclAuthorizer


def acl_authorizer(settings: Settings) -> AclAuthorizer | None:
    """Return the authorizer that enforces ACLs; None if every client may do everything."""
    if not settings.authorizer_class_name:
        return None
    allows = settings.allow_everyone_if_no_acl_found
    return AclAuthorizer(super_users_of(settings), allows_if_no_acl=allows)
