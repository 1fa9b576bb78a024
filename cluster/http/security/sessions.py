"""Login sessions of one broker's HTTP listener: their secrets, their end and their revocation. Pure."""

import base64
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

from cordwood.cluster.security.principal import Principal

SESSIONS_MAX = 10_000
SESSIONS_OF_ONE_MAX = 16
"""Sessions of one principal; a further login ends the one that is unused for the longest time."""
IDLE_S = 3600.0
"""A session without a request for this long has ended. The console sends requests while it is open."""
SECRET_BYTES = 32
SECRET_CHARS = 43
"""The length of a secret in base64url without padding."""


@dataclass(slots=True, eq=False)
class LoginSession:
    """One login. The cookie's secret is not kept, only its hash."""

    principal: Principal
    csrf_token: str
    """The secret that a page of the broker sends with each change, and a page of another site cannot read."""
    credentials: object
    """The user's credentials at the time of the login: a session ends with them."""
    ends_at: float
    used_at: float
    key: bytes

    def is_csrf_token(self, text: str) -> bool:
        """Compare in constant time."""
        return compare_digest(self.csrf_token.encode(), text.encode("utf-8", "surrogateescape"))


class Sessions:
    """All sessions of one broker. Times are in seconds of one monotonic clock."""

    def __init__(
        self,
        lifetime_s: float,
        credentials_of: Callable[[str], object],
        random_bytes: Callable[[int], bytes],
        sessions_max: int = SESSIONS_MAX,
    ) -> None:
        """`credentials_of` returns what proves a user's name now: a value that changes with the user's password."""
        self._lifetime_s, self._credentials_of, self._random_bytes = lifetime_s, credentials_of, random_bytes
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[bytes, LoginSession] = OrderedDict()
        """By the hash of the secret, so that the time of a look-up reveals nothing; the least recently used first."""
        self._of_principal: dict[Principal, list[LoginSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, principal: Principal, credentials: object, now: float) -> tuple[str, LoginSession]:
        """Begin a session. Return the cookie's secret and the session.

        `credentials` are those from before the password was checked: after a change meanwhile the session has ended.
        """
        mine = self._of_principal.get(principal, ())
        if len(mine) >= SESSIONS_OF_ONE_MAX:
            self.end(min(mine, key=lambda session: session.used_at))
        while len(self._sessions) >= self._sessions_max:
            self.end(next(iter(self._sessions.values())))
        secret = self._secret()
        key = _key_of(secret)
        session = LoginSession(principal, self._secret(), credentials, now + self._lifetime_s, now, key)
        self._sessions[key] = session
        self._of_principal.setdefault(principal, []).append(session)
        return secret, session

    def find(self, secret: str, now: float) -> LoginSession | None:
        """Return the session of a cookie, and count that as a use; None if there is none or it has ended."""
        if len(secret) != SECRET_CHARS or not secret.isascii():
            return None
        session = self._sessions.get(_key_of(secret))
        return session if session is not None and self.use(session, now) else None

    def use(self, session: LoginSession, now: float) -> bool:
        """Count a use of a session. Return False if it has ended: by time, by logout or by a change of the password."""
        if session.key not in self._sessions:
            return False
        is_late = now >= session.ends_at or now - session.used_at >= IDLE_S
        if is_late or self._credentials_of(session.principal.name) != session.credentials:
            self.end(session)
            return False
        session.used_at = now
        self._sessions.move_to_end(session.key)
        return True

    def end(self, session: LoginSession) -> None:
        """End a session, if it has not ended before."""
        if self._sessions.pop(session.key, None) is None:
            return
        mine = self._of_principal[session.principal]
        mine.remove(session)
        if not mine:
            del self._of_principal[session.principal]

    def _secret(self) -> str:
        return base64.urlsafe_b64encode(self._random_bytes(SECRET_BYTES)).rstrip(b"=").decode()


def _key_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
