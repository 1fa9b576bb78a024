"""The credentials of this broker for connections to others."""

from typing import TYPE_CHECKING

from cordwood.cluster.config.listeners import ListenerMistake, inter_broker_listener, protocol_of
from cordwood.cluster.config.settings import Settings

if TYPE_CHECKING:
    from cordwood.client.credentials import SaslCredentials


def credentials_of(settings: Settings) -> "SaslCredentials | None":
    """Return the credentials of this broker for other brokers, if there are any and their listener has SASL.

    Raises ListenerMistake.
    """
    listener = inter_broker_listener(settings)
    has_peers = settings.controller_quorum_voters or settings.controller_quorum_bootstrap_servers
    if not (has_peers and protocol_of(settings, listener).startswith("SASL_")):
        return None
    # Of no use to a broker without SASL.
    from cordwood.client.security import client_security
    from cordwood.client.tls import WrongSetting

    mechanism = settings.sasl_mechanism_inter_broker_protocol
    given = {
        key: str(settings.listener_value(listener, key, mechanism) or "")
        for key in ("sasl.username", "sasl.password", "sasl.jaas.config")
    }
    try:
        return client_security({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **given}).sasl
    except WrongSetting as mistake:
        raise ListenerMistake(
            f"Listener {listener} is for connections between brokers and has SASL: {mistake}. Set"
            f" listener.name.{listener.lower()}.sasl.username and .sasl.password to those of the brokers' user."
        ) from None
