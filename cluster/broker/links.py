"""Security of the connections between brokers: replication and requests, and the metadata quorum."""

import ssl

from cordwood.cluster.config.link_credentials import credentials_of
from cordwood.cluster.config.listeners import controller_name, inter_broker_listener
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.super_users import super_users_of
from cordwood.cluster.kafka.peers import OPEN_LINKS, LinkSecurity
from cordwood.cluster.metadata.quorum import QuorumTls
from cordwood.cluster.security.certificate_rules import NoRuleMatches
from cordwood.cluster.security.tls_errors import TlsMistake
from cordwood.cluster.security.tls_listeners import TlsListeners


def link_security(settings: Settings, tls: TlsListeners | None) -> LinkSecurity:
    """Return how this broker connects to the listener of others for brokers. Raises ListenerMistake."""
    credentials = credentials_of(settings)
    own = None if tls is None else tls.of(inter_broker_listener(settings))
    if credentials is None and own is None:
        return OPEN_LINKS
    return LinkSecurity(
        None if own is None else own.client_context, None if credentials is None else lambda: credentials
    )


def quorum_tls(settings: Settings, tls: TlsListeners | None) -> QuorumTls | None:
    """Return the TLS of the metadata quorum; None if the controller listener has none. Raises TlsMistake.

    A peer that has proved the quorum's secret needs only a certificate of a trusted authority. Without a secret, the
    certificate is the proof: its principal is that of this broker, or a super user. ACLs do not count, since they are
    in the metadata that the quorum brings.
    """
    listener = controller_name(settings)
    own = None if tls is None else tls.of(listener)
    if own is None:
        return None
    if not own.options.truststore:
        raise TlsMistake(
            f"Listener {listener} asks the other brokers for certificates, but trusts no authority: set"
            " ssl.truststore.location."
        )

    super_users = super_users_of(settings)

    def server() -> ssl.SSLContext:
        context = own.server_context()
        # Independently of ssl.client.auth: both ends of a quorum connection are brokers.
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def why_not(certificate: bytes) -> str | None:
        try:
            identity = own.identity("", certificate)
            own_principal = own.identity("", own.certificate).principal
        except NoRuleMatches as mismatch:
            return str(mismatch)
        if settings.controller_quorum_secret or identity.principal == own_principal:
            return None
        if str(identity.principal) in super_users:
            return None
        return (
            f"{identity.principal} is no broker of this cluster: add it to super.users, or give all brokers one"
            " principal by ssl.principal.mapping.rules"
        )

    return QuorumTls(own.client_context, server, why_not, settings.controller_quorum_plaintext_allowed)
