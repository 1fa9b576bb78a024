"""PLAIN, server side: the password of the user's SCRAM credential."""

import sys

import pytest

from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.principal import Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.sasl.plain import PlainSaslServer
from cordwood.cluster.security.sasl.scram_keys import credential_of
from cordwood.cluster.security.sasl.users import Users

SHA_256, SHA_512 = ScramMechanism
CREDENTIALS = {
    ("alice", SHA_256): credential_of("secret", b"salt", 4096, SHA_256),
    ("bob", SHA_512): credential_of("geheim", b"salt", 4096, SHA_512),
}
INVALID = "Authentication failed: Invalid username or password"


def exchange() -> PlainSaslServer:
    return PlainSaslServer(Users(lambda: CREDENTIALS, b"secret"))


@pytest.mark.parametrize(
    ("message", "name"),
    [(b"\0alice\0secret", "alice"), (b"alice\0alice\0secret", "alice"), (b"\0bob\0geheim", "bob")],
)
def test_the_password_of_either_credential_is_accepted(message: bytes, name: str) -> None:
    tried = exchange()
    assert tried.step(message) == b""
    assert tried.outcome == Authenticated(Principal("User", name))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"\0alice\0wrong", INVALID),
        (b"\0alice\0secret ", INVALID),
        (b"\0nobody\0secret", INVALID),
        (b"\0Alice\0secret", INVALID),
        (b"bob\0alice\0wrong", INVALID),
        (b"bob\0alice\0secret", "authorization id"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice\0\xff", "not UTF-8"),
    ],
)
def test_anything_else_is_refused(message: bytes, said: str) -> None:
    tried = exchange()
    with pytest.raises(AuthenticationFailed, match=said) as failure:
        tried.step(message)
    assert tried.outcome is None
    assert "secret" not in f"{failure.value} {failure.value.detail} {failure.value.claimed}"


def test_an_unknown_user_costs_as_much_as_a_wrong_password() -> None:
    assert derivations(b"\0nobody\0wrong") == derivations(b"\0alice\0wrong") == 1
    users = Users(lambda: CREDENTIALS, b"secret")
    known, unknown = users.find("alice", SHA_256), users.find("nobody", SHA_256)
    assert known.credential.iterations == unknown.credential.iterations


def derivations(message: bytes) -> int:
    """Return how many keys a refused message derives from passwords."""
    called: list[str] = []

    def note(_frame: object, event: str, function: object) -> None:
        if event == "c_call":
            called.append(getattr(function, "__name__", ""))

    sys.setprofile(note)
    try:
        with pytest.raises(AuthenticationFailed):
            exchange().step(message)
    finally:
        sys.setprofile(None)
    return called.count("pbkdf2_hmac")
