"""Settings of the clients' authentication: SASL mechanisms, an identity provider's tokens, and delegation tokens."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import DAY_MS, HOUR_MS, SECOND_MS, setting
from cordwood.cluster.metadata.config_values import integer, long, string, words


@dataclass(frozen=True, kw_only=True)
class AuthenticationSettings:
    """Authentication of clients, except by TLS."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        words("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        "The SASL mechanisms of the listeners with SASL. PLAIN has the same users as SCRAM. OAUTHBEARER needs"
        " sasl.oauthbearer.jwks.endpoint.url.",
        per_listener=True,
    )
    sasl_plain_unencrypted_listeners: tuple[str, ...] = setting(
        (),
        words(),
        "Names of the listeners without TLS on which PLAIN is allowed. Anyone on the network can read its passwords.",
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        60 * SECOND_MS, long(), "Kept for Kafka's tools. There is no GSSAPI.", dynamic=True
    )
    connections_max_reauth_ms: int = setting(
        0,
        long(0),
        "The time after which a client has to authenticate again on its connection (KIP-368); 0 for never. A"
        " connection whose session has ended is closed at its next request.",
        per_listener=True,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100,
        integer(0, 10 * SECOND_MS),
        "The delay of the answer to a failed authentication, which slows down guessing.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "",
        string(),
        "The address of the identity provider's public keys (a JSON Web Key Set): file:///PATH or https://HOST/PATH."
        " Redirects are not followed. Required for OAUTHBEARER and for bearer tokens over HTTP.",
    )
    sasl_oauthbearer_jwks_endpoint_ssl_truststore_location: str | None = setting(
        None,
        string(),
        "A PEM file of the certificate authorities for the address of the keys; those of the system if unset.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        HOUR_MS,
        long(SECOND_MS),
        "The interval at which the identity provider's keys are read. They are read sooner when a token names an"
        " unknown key, but not more often than each sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, long(1), "The pause after the identity provider's keys could not be read; doubled with each failure."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        10 * SECOND_MS, long(1), "The longest pause after the identity provider's keys could not be read."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        (),
        words(),
        "Audiences of which a token must have at least one. If empty, only tokens without an audience are accepted.",
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "", string(), "The issuer that a token must have; if empty, the issuer is not checked."
    )
    sasl_oauthbearer_sub_claim_name: str = setting("sub", string(), "The claim of a token that names its user.")
    sasl_oauthbearer_scope_claim_name: str = setting("scope", string(), "The claim of a token that has its scopes.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30,
        integer(0, 3600),
        "The largest difference between the clocks of the identity provider and of the broker.",
    )
    delegation_token_secret_key: str = setting(
        "",
        string(),
        "The secret from which delegation tokens are made, the same on all brokers: a long random text. If empty,"
        " there are no delegation tokens.",
        is_secret=True,
    )
    delegation_token_max_lifetime_ms: int = setting(
        7 * DAY_MS, long(1, 36500 * DAY_MS), "The age from which a delegation token cannot be renewed."
    )
    delegation_token_expiry_time_ms: int = setting(
        DAY_MS, long(1, 36500 * DAY_MS), "The time until which a delegation token is valid without renewal."
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        HOUR_MS, long(1), "The interval at which expired delegation tokens are removed."
    )
