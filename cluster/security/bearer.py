"""Bearer tokens: the contents and required claims of a valid one. Their validation is in `jwt.py`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cordwood.cluster.config.settings import Settings


class TokenRefused(Exception):
    """The token is invalid. The message is for its holder, and quotes neither the token nor a claim that is secret."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have. Empty audiences and an empty issuer are not compared."""

    audiences: Sequence[str] = ()
    issuer: str = ""
    sub_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: int = 30


@dataclass(frozen=True, slots=True)
class BearerToken:
    """The claims of a valid token that count here."""

    subject: str
    expires_at_ms: int
    """The wall clock's time from which the token is refused: its `exp` and the clock skew."""
    scopes: frozenset[str] = field(default=frozenset())


ValidateToken = Callable[[str], BearerToken]
"""Returns the claims of a token. Raises TokenRefused. It never blocks."""


def rules_of(settings: Settings) -> TokenRules:
    """Return the rules from the settings."""
    return TokenRules(
        audiences=settings.sasl_oauthbearer_expected_audience,
        issuer=settings.sasl_oauthbearer_expected_issuer,
        sub_claim=settings.sasl_oauthbearer_sub_claim_name,
        scope_claim=settings.sasl_oauthbearer_scope_claim_name,
        clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
    )


def unchecked_claims(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each claim that the settings leave unchecked: a token for another service may pass."""
    if not settings.sasl_oauthbearer_expected_issuer:
        yield "sasl.oauthbearer.expected.issuer is empty: the issuer of tokens is not checked"
    if not settings.sasl_oauthbearer_expected_audience:
        yield "sasl.oauthbearer.expected.audience is empty: tokens without an audience are accepted"
