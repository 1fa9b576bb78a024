"""The checks of credentials over HTTP: the same as those of Kafka's SASL mechanisms."""

from hmac import compare_digest

from aiohttp import web

from cordwood.cluster.config.listeners import HTTP
from cordwood.cluster.http.security.credentials import Checks, unauthenticated
from cordwood.cluster.security.bearer import TokenRefused, ValidateToken
from cordwood.cluster.security.certificate_rules import NoRuleMatches
from cordwood.cluster.security.delegation_tokens import DelegationTokens
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.tls_listeners import TlsListeners


def checks_of(tokens: DelegationTokens, validate: ValidateToken, tls: TlsListeners | None) -> Checks:
    """Return the checks of a broker."""
    own_tls = None if tls is None else tls.of(HTTP)

    def bearer(token: str) -> Authenticated:
        try:
            valid = validate(token)
        except TokenRefused as refused:
            raise AuthenticationFailed(str(refused)) from None
        return Authenticated(Principal(USER, valid.subject), expires_at_ms=valid.expires_at_ms)

    def token(token_id: str, secret: str) -> Authenticated:
        if not tokens.is_enabled:
            raise AuthenticationFailed("Delegation tokens are disabled on this broker")
        # The secret is computed and compared for an unknown id, too.
        fits = compare_digest(tokens.password(token_id).encode(), secret.encode())
        found = tokens.valid(token_id)
        if not fits or found is None:
            raise AuthenticationFailed("The delegation token is unknown or has expired, or its secret is wrong")
        return Authenticated(Principal.of(found.owner), is_token=True, expires_at_ms=found.expiry_ms)

    def certificate(request: web.Request) -> Principal | None:
        transport = request.transport
        proved = None if transport is None else transport.get_extra_info("ssl_object")
        if own_tls is None or proved is None or (encoded := proved.getpeercert(binary_form=True)) is None:
            return None
        try:
            return own_tls.identity("", encoded).principal
        except NoRuleMatches as error:
            raise unauthenticated(f"The certificate is not accepted: {error}.") from None

    return Checks(bearer=bearer, token=token, certificate=certificate)
