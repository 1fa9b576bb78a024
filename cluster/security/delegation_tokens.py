"""Delegation tokens (KIP-48): their secrets, who may see and renew them, and their times.

A token is an id and a secret, the HMAC of the id with `delegation.token.secret.key`. The metadata has the ids, and no
secret. The secret in base64 is a SCRAM password.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping

from cordwood.cluster.metadata.credentials import DelegationToken, ScramMechanism
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.principal import Principal
from cordwood.cluster.security.sasl.scram import TokenCredential
from cordwood.cluster.security.sasl.scram_keys import ITERATIONS_MIN, credential_of
from cordwood.cluster.security.sasl.users import SALT_BYTES


class DelegationTokens:
    """The tokens of this cluster, as the newest image has them."""

    def __init__(self, secret_key: str, image: Callable[[], Image], wall_clock: Callable[[], int]) -> None:
        self._key, self._image, self._wall_clock = secret_key.encode(), image, wall_clock
        self._seen: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """Token ids by the digest of their secret: the time of a search reveals nothing about another secret."""
        self._digests: dict[str, bytes] = {}

    @property
    def is_enabled(self) -> bool:
        return bool(self._key)

    def secret(self, token_id: str) -> bytes:
        """Return the secret of a token id."""
        assert self._key, "delegation tokens are disabled"
        return hmac.digest(self._key, token_id.encode(), hashlib.sha512)

    def with_secret(self, secret: bytes) -> DelegationToken | None:
        """Return the token with a secret, valid or expired; None if there is none."""
        if not self._key:
            return None
        self._follow()
        token_id = self._ids.get(_digest(secret))
        return None if token_id is None else self._seen[token_id]

    def valid(self, token_id: str) -> DelegationToken | None:
        """Return the token with an id, unless it has expired; None if there is none."""
        token = self._image().delegation_tokens.get(token_id) if self._key else None
        return None if token is None or is_expired(token, self._wall_clock()) else token

    def password(self, token_id: str) -> str:
        """Return the SCRAM password of a token id, whether there is such a token or not."""
        return base64.b64encode(self.secret(token_id)).decode()

    def credential(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        """Return the SCRAM credential of a valid token; None if there is none. Takes milliseconds: for a thread.

        The time does not depend on whether there is such a token. The salt is the same on all brokers.
        """
        if not self._key:
            return None
        salt = hmac.digest(self._key, b"salt " + token_id.encode(), hashlib.sha512)[:SALT_BYTES]
        credential = credential_of(self.password(token_id), salt, ITERATIONS_MIN, mechanism)
        token = self.valid(token_id)
        if token is None:
            return None
        return TokenCredential(credential, Principal.of(token.owner), min(token.expiry_ms, token.max_ms))

    def _follow(self) -> None:
        """Bring the index up to date: only tokens that came and went cost time beyond a comparison of the ids."""
        now = self._image().delegation_tokens
        if now is self._seen:
            return
        for gone in self._digests.keys() - now.keys():
            del self._ids[self._digests.pop(gone)]
        for new in now.keys() - self._digests.keys():
            digest = self._digests[new] = _digest(self.secret(new))
            self._ids[digest] = new
        self._seen = now


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def is_expired(token: DelegationToken, now_ms: int) -> bool:
    """Return whether a token is refused: it is valid until the millisecond before its expiry."""
    return now_ms >= min(token.expiry_ms, token.max_ms)


def may_renew(token: DelegationToken, principal: Principal) -> bool:
    """Return whether the principal may renew and expire the token: its owner and its renewers may."""
    return str(principal) in (token.owner, *token.renewers)


def has_part_in(token: DelegationToken, principal: str) -> bool:
    """Return whether the principal is the token's owner, its requester or one of its renewers."""
    return principal in (token.owner, token.requester, *token.renewers)


def end_of_period(now_ms: int, period_ms: int, usual_ms: int) -> int:
    """Return the end of a period that a client asked for, which is at most the usual one. -1 asks for the usual one."""
    return now_ms + (min(usual_ms, period_ms) if period_ms > 0 else usual_ms)
