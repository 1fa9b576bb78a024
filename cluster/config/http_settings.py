"""Settings of HTTP authentication and sessions."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import HOUR_MS, SECOND_MS, setting
from cordwood.cluster.metadata.config_values import boolean, long, string


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The access to the HTTP listener."""

    http_authentication: str = setting(
        "auto",
        string("auto", "none", "required"),
        "Whether HTTP requires a login, a token or a client certificate. auto: as soon as one listener does, by SASL"
        " or by a required client certificate. none: a client without them is User:ANONYMOUS, and ACLs apply to it.",
    )
    http_metrics_public: bool = setting(
        False, boolean(), "Whether /metrics is served to every client, even if HTTP requires a login."
    )
    http_session_lifetime_ms: int = setting(
        12 * HOUR_MS,
        long(SECOND_MS),
        "The longest time from a login to the end of its session. A session without a request ends after one hour.",
    )
    http_login_without_tls: bool = setting(
        False,
        boolean(),
        "Whether passwords and tokens are accepted over HTTP without TLS from other machines: set it only if a proxy"
        " in front of the broker has TLS. This machine's clients need no TLS.",
    )
