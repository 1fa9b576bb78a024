"""SASL mechanisms of the listeners, and the address of the identity provider's keys."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from cordwood.cluster.config.listeners import ListenerMistake, listeners_of
from cordwood.cluster.config.settings import Settings

_WITHOUT_TLS = "SASL_PLAINTEXT"
_JWKS = "sasl.oauthbearer.jwks.endpoint.url"


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


def oauthbearer_mistakes(settings: Settings) -> Iterator[str]:
    """Yield a sentence for an address of the keys that is missing, insecure or has a password."""
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        if "OAUTHBEARER" in settings.sasl_enabled_mechanisms:
            yield (
                f"sasl.enabled.mechanisms has OAUTHBEARER, and {_JWKS} is empty: set it to the address of the keys with"
                " which tokens are checked."
            )
        return
    try:
        parts = urlsplit(url)
        has_host, has_user = bool(parts.hostname), parts.username is not None or parts.password is not None
    except ValueError:
        yield f"{_JWKS} is not an address: write it as https://HOST/PATH or file:///PATH."
        return
    if has_user:
        yield f"{_JWKS} has a user or a password, which would be shown: remove it."
    elif parts.scheme == "file":
        if not parts.path.startswith("/") or parts.hostname not in (None, "localhost"):
            yield f"{_JWKS} is {url!r}: write a file as file:///PATH."
    elif parts.scheme != "https" or not has_host:
        safe = "write it as https://HOST/PATH or file:///PATH. Over http, the keys could be replaced."
        yield f"{_JWKS} is {url!r}: {safe}"
