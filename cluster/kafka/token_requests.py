"""Requests for delegation tokens: who may send them, and the elements that they share."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.metadata.credentials import DelegationToken
from cordwood.cluster.security.delegation_tokens import is_expired, may_renew
from cordwood.cluster.security.principal import USER, Principal

NEVER_MS = 0
"""The times in the response to a refused request: -1 in Kafka, which kio refuses to read."""
NAME_CHARS_MAX = 255
ATTEMPTS_MAX = 5

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(ms: int) -> datetime:
    """Return a time of the protocol."""
    return _EPOCH + timedelta(milliseconds=ms)


def milliseconds(period: timedelta) -> int:
    return period // timedelta(milliseconds=1)


def check_client(call: Call) -> None:
    """Refuse clients that are not authenticated, and clients that have authenticated with a token (KIP-48).

    Raises Refused.
    """
    if not call.identity.mechanism or call.identity.is_token:
        message = (
            "Delegation tokens can be requested only on an authenticated connection, and not on one that was"
            " authenticated with a delegation token."
        )
        raise Refused(ErrorCode.delegation_token_request_not_allowed, message)


def check_enabled(call: Call) -> None:
    """Raise Refused without `delegation.token.secret.key`."""
    if not call.services.tokens.is_enabled:
        raise Refused(ErrorCode.delegation_token_auth_disabled, "delegation.token.secret.key is not set.")


def user(kind: str, name: str) -> Principal:
    """Return the principal of a request. Raises Refused unless it is a user."""
    if kind != USER or not 0 < len(name) <= NAME_CHARS_MAX:
        raise Refused(ErrorCode.invalid_principal_type, "An owner and a renewer must be a user with a name.")
    return Principal(kind, name)


def own_token(secret: bytes, call: Call) -> DelegationToken:
    """Return the token with a secret for its owner or a renewer. Raises Refused for others and if it has expired."""
    token = call.services.tokens.with_secret(secret)
    if token is None:
        raise Refused(ErrorCode.delegation_token_not_found)
    if is_expired(token, call.services.wall_clock()):
        raise Refused(ErrorCode.delegation_token_expired)
    if not may_renew(token, call.identity.principal):
        raise Refused(ErrorCode.delegation_token_owner_mismatch)
    return token


async def changed_expiry(change: Callable[[], Awaitable[int | None]], call: Call) -> tuple[ErrorCode, datetime]:
    """Change a token's expiry, if the client may. Return an error code and the new expiry."""
    try:
        check_client(call)
        check_enabled(call)
        return ErrorCode.none, timestamp(await _settled(change))
    except Refused as refusal:
        return refusal.code, timestamp(NEVER_MS)


async def _settled(attempt: Callable[[], Awaitable[int | None]]) -> int:
    """Repeat an attempt that returns None while other requests change the same token. Return its result.

    Raises Refused.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            result = await attempt()
        except Refused as refusal:
            if refusal.code is not ErrorCode.invalid_update_version:
                raise
        else:
            if result is not None:
                return result
    raise Refused(ErrorCode.request_timed_out, "Other requests keep changing the token.")
