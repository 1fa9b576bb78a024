"""Login sessions: their secrets, expiry, revocation and bounds."""

import random
import re
from dataclasses import dataclass, field

import pytest

from cordwood.cluster.http.security.sessions import IDLE_S, SESSIONS_OF_ONE_MAX, LoginSession, Sessions
from cordwood.cluster.security.principal import USER, Principal

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
LIFETIME_S = 10 * IDLE_S


@dataclass
class Users:
    """The sessions of a broker, and its users' credentials."""

    credentials: dict[str, object] = field(default_factory=lambda: {"alice": "a1", "bob": "b1"})
    now: float = 100.0
    sessions_max: int = 100

    def __post_init__(self) -> None:
        self.sessions = Sessions(LIFETIME_S, self.credentials.get, random.Random(1).randbytes, self.sessions_max)

    def log_in(self, principal: Principal = ALICE) -> tuple[str, LoginSession]:
        return self.sessions.begin(principal, self.credentials.get(principal.name), self.now)

    def find(self, secret: str) -> LoginSession | None:
        return self.sessions.find(secret, self.now)


@pytest.fixture
def users() -> Users:
    return Users()


def test_the_secret_of_a_cookie_finds_its_session(users: Users) -> None:
    secret, session = users.log_in()
    other_secret, other = users.log_in(BOB)
    assert users.find(secret) is session
    assert users.find(other_secret) is other
    assert session.principal == ALICE


@pytest.mark.parametrize("secret", ["", "a" * 43, "a" * 10_000, "\N{SNOWMAN}" * 43])
def test_another_secret_finds_nothing(users: Users, secret: str) -> None:
    users.log_in()
    assert users.find(secret) is None


def test_neither_the_secret_nor_a_part_of_it_is_kept(users: Users) -> None:
    secret, session = users.log_in()
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)
    assert secret not in repr(session)
    assert secret != session.csrf_token
    assert session.is_csrf_token(session.csrf_token)
    for wrong in ("", secret, session.csrf_token[:-1], "\udcff"):
        assert not session.is_csrf_token(wrong)


def test_secrets_differ(users: Users) -> None:
    assert len({text for _ in range(20) for text in (lambda one: (one[0], one[1].csrf_token))(users.log_in())}) == 40


def test_a_session_ends_with_its_lifetime_however_much_it_is_used(users: Users) -> None:
    secret, session = users.log_in()
    for _ in range(19):
        users.now += IDLE_S / 2
        assert users.find(secret) is session
    users.now += IDLE_S / 2
    assert users.find(secret) is None
    assert not users.sessions.use(session, users.now)


def test_an_idle_session_ends(users: Users) -> None:
    secret, session = users.log_in()
    users.now += IDLE_S - 1
    assert users.find(secret) is session
    users.now += IDLE_S
    assert users.find(secret) is None
    assert len(users.sessions) == 0


@pytest.mark.parametrize("credential", ["a2", None], ids=["changed", "removed"])
def test_a_session_ends_with_the_users_credential(users: Users, credential: str | None) -> None:
    secret, session = users.log_in()
    other, _ = users.log_in(BOB)
    users.credentials["alice"] = credential
    assert not users.sessions.use(session, users.now)
    assert users.find(secret) is None
    users.credentials["alice"] = "a1"
    assert users.find(secret) is None, "what has ended does not come back"
    assert users.find(other) is not None


def test_a_password_that_changes_during_a_login_ends_the_session_at_once(users: Users) -> None:
    before = users.credentials["alice"]
    users.credentials["alice"] = "a2"
    secret, _ = users.sessions.begin(ALICE, before, users.now)
    assert users.find(secret) is None


def test_a_logout_ends_one_session(users: Users) -> None:
    secret, session = users.log_in()
    second, _ = users.log_in()
    users.sessions.end(session)
    users.sessions.end(session)
    assert users.find(secret) is None
    assert users.find(second) is not None


def test_one_user_has_a_bounded_number_of_sessions(users: Users) -> None:
    other, _ = users.log_in(BOB)
    secrets = []
    for _ in range(SESSIONS_OF_ONE_MAX + 3):
        users.now += 1
        secrets.append(users.log_in()[0])
    assert [users.find(secret) is not None for secret in secrets] == [False] * 3 + [True] * SESSIONS_OF_ONE_MAX
    assert users.find(other) is not None, "another user keeps its own"


def test_all_sessions_together_are_bounded() -> None:
    users = Users(sessions_max=3)
    first, _ = users.log_in()
    for name in ("b", "c"):
        users.sessions.begin(Principal(USER, name), None, users.now)
    assert users.find(first) is not None
    users.sessions.begin(Principal(USER, "d"), None, users.now)
    assert len(users.sessions) == 3
    assert users.find(first) is not None, "the one that is unused for the longest time has gone"
