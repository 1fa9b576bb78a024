"""SASL mechanisms of the listeners."""

from cordwood.cluster.config.listeners import ListenerMistake, listeners_of
from cordwood.cluster.config.settings import Settings

_WITHOUT_TLS = "SASL_PLAINTEXT"


def mechanisms_on(settings: Settings, listener: str) -> tuple[str, ...]:
    """Return the names of the mechanisms on a listener."""
    names = settings.listener_value(listener, "sasl.enabled.mechanisms")
    return names if isinstance(names, tuple) else ()


def session_ms_max(settings: Settings, listener: str, mechanism: str) -> int:
    """Return the longest session of a mechanism on a listener; 0 for no limit."""
    limit_ms = settings.listener_value(listener, "connections.max.reauth.ms", mechanism)
    return limit_ms if isinstance(limit_ms, int) else 0


def check_mechanisms(settings: Settings) -> None:
    """Raise ListenerMistake if passwords would cross the network readably without an explicit permission."""
    permitted = {name.upper() for name in settings.sasl_plain_unencrypted_listeners}
    for listener in listeners_of(settings):
        is_readable = listener.protocol == _WITHOUT_TLS and "PLAIN" in mechanisms_on(settings, listener.name)
        if is_readable and listener.name not in permitted:
            raise ListenerMistake(
                f"Listener {listener.name} has no TLS, and PLAIN sends passwords readably: use SASL_SSL, remove PLAIN"
                f" from sasl.enabled.mechanisms, or add {listener.name} to sasl.plain.unencrypted.listeners."
            )
