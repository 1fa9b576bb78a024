"""The address of the identity provider's keys: which ones are accepted."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from cordwood.cluster.config.settings import Settings

KEY = "sasl.oauthbearer.jwks.endpoint.url"


def oauthbearer_mistakes(settings: Settings) -> Iterator[str]:
    """Yield a sentence for an address of the keys that is missing, insecure or has a password."""
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        if "OAUTHBEARER" in settings.sasl_enabled_mechanisms:
            yield (
                f"sasl.enabled.mechanisms has OAUTHBEARER, and {KEY} is empty: set it to the address of the keys with"
                " which tokens are checked."
            )
        return
    try:
        parts = urlsplit(url)
        has_host, has_user = bool(parts.hostname), parts.username is not None or parts.password is not None
    except ValueError:
        yield f"{KEY} is not an address: write it as https://HOST/PATH or file:///PATH."
        return
    if has_user:
        yield f"{KEY} has a user or a password, which would be shown: remove it."
    elif parts.scheme == "file":
        if not parts.path.startswith("/") or parts.hostname not in (None, "localhost"):
            yield f"{KEY} is {url!r}: write a file as file:///PATH."
    elif parts.scheme != "https" or not has_host:
        yield f"{KEY} is {url!r}: write it as https://HOST/PATH or file:///PATH. Over http, the keys could be replaced."
