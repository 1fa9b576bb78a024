"""The access control of HTTP: credentials are checked as by Kafka's SASL mechanisms and TLS listeners."""

from collections.abc import Callable
from functools import lru_cache
from hmac import compare_digest
from typing import TYPE_CHECKING

from aiohttp import web

from cordwood.cluster.broker.credentials import Credentials, users_of
from cordwood.cluster.http.security.access import AccessControl
from cordwood.cluster.http.security.credentials import Checks, PasswordCheck, TooManyChecks, scram_credentials_of
from cordwood.cluster.kafka.call import Services
from cordwood.cluster.kafka.slow_steps import SlowSteps, TooManyWait
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.bearer import TokenRefused, ValidateToken
from cordwood.cluster.security.certificate_rules import NoRuleMatches
from cordwood.cluster.security.delegation_tokens import DelegationTokens
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.sasl.plain import PlainSaslServer
from cordwood.cluster.security.sasl.users import Users

if TYPE_CHECKING:
    from cordwood.cluster.security.tls import Tls

CERTIFICATES_MAX = 256
"""Certificates whose principals are kept: parsing one takes some 50 µs, and each request asks."""


def http_access(
    services: Services,
    credentials: Credentials,
    tls: "Tls | None",
    is_current: Callable[[], bool],
    now: Callable[[], float],
) -> AccessControl:
    """Return the access control. `is_current` and `now` are those of AccessControl."""
    settings = services.settings

    def image() -> Image:
        return services.quorum.image

    checks = Checks(
        _password_check(users_of(settings, image), SlowSteps(services.run_blocking)),
        lambda token: _bearer(token, credentials.bearer.validate),
        lambda token_id, secret: _token(token_id, secret, credentials.tokens),
        _certificate_check(tls),
    )
    return AccessControl(
        settings=settings,
        authorizer=services.authorizer,
        checks=checks,
        credentials_of=lambda user: scram_credentials_of(user, image()),
        is_current=is_current,
        audit=services.audit,
        now=now,
        wall_clock=services.wall_clock,
        random_bytes=services.rng.randbytes,
    )


def _password_check(users: Users, slow_steps: SlowSteps) -> PasswordCheck:
    async def check(user: str, password: str, host: str) -> Principal | None:
        exchange = PlainSaslServer(users)
        message = f"\0{user}\0{password}".encode()
        try:
            await slow_steps.run(host, exchange.step, message)
        except AuthenticationFailed:
            return None
        except TooManyWait as refused:
            raise TooManyChecks(str(refused)) from None
        assert exchange.outcome is not None, "PLAIN takes one step"
        return exchange.outcome.principal

    return check


def _bearer(token: str, validate: ValidateToken) -> Authenticated:
    try:
        valid = validate(token)
    except TokenRefused as refused:
        raise AuthenticationFailed(str(refused)) from None
    return Authenticated(Principal(USER, valid.subject), expires_at_ms=valid.expires_at_ms)


def _token(token_id: str, secret: str, tokens: DelegationTokens) -> Authenticated:
    if not tokens.is_enabled:
        raise AuthenticationFailed("Delegation tokens are disabled on this broker")
    # The secret is computed and compared for an unknown id, too.
    fits = compare_digest(tokens.password(token_id).encode(), secret.encode())
    found = tokens.valid(token_id)
    if not fits or found is None:
        raise AuthenticationFailed("The delegation token is unknown or has expired, or its secret is wrong")
    return Authenticated(Principal.of(found.owner), is_token=True, expires_at_ms=min(found.expiry_ms, found.max_ms))


def _certificate_check(tls: "Tls | None") -> Callable[[web.Request], Principal | None]:
    @lru_cache(CERTIFICATES_MAX)
    def principal_of(certificate: bytes) -> Principal | None:
        assert tls is not None, "there are certificates under TLS alone"
        identity = tls.identity("", certificate)
        return identity.principal if identity.mechanism else None

    def check(request: web.Request) -> Principal | None:
        connection = None if tls is None else request.get_extra_info("ssl_object")
        certificate = None if connection is None else connection.getpeercert(binary_form=True)
        if certificate is None:
            return None
        try:
            return principal_of(certificate)
        except NoRuleMatches as refused:
            raise AuthenticationFailed(str(refused)) from None

    return check
