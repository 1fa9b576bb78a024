"""SCRAM, server side: scramp's client is the oracle, and each departure from the protocol is refused."""

import base64
import hashlib
import hmac
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scramp import ScramClient

from cordwood.cluster.metadata.credentials import ScramCredential, ScramMechanism
from cordwood.cluster.security.principal import Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.sasl.scram import (
    TOKEN_USER,
    ScramSaslServer,
    TokenCredential,
    needs_thread,
    no_tokens,
)
from cordwood.cluster.security.sasl.scram_keys import MECHANISM_NAMES, credential_of
from cordwood.cluster.security.sasl.users import Users

SHA_256, SHA_512 = ScramMechanism
SALT, ITERATIONS = b"salt of alice", 4096
PASSWORD = "her secret"
ALICE = {("alice", kind): credential_of(PASSWORD, SALT, ITERATIONS, kind) for kind in ScramMechanism}
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"


def users(credentials: dict[tuple[str, ScramMechanism], ScramCredential] | None = None) -> Users:
    known = ALICE if credentials is None else credentials
    return Users(lambda: known, b"cluster secret")


def exchange(kind: ScramMechanism = SHA_256, find_token: object = no_tokens) -> ScramSaslServer:
    return ScramSaslServer(kind, users(), "OURS", find_token)  # type: ignore[arg-type]


class Client:
    """A client that can depart from the protocol."""

    def __init__(self, server: ScramSaslServer, first: str = "n,,n=alice,r=theirs", password: str = PASSWORD) -> None:
        self.server, self._first, self._password = server, first, password
        self._bare = first.split(",", 2)[2]

    def begin(self) -> str:
        """Send the first message. Return the server's reply."""
        self.reply = self.server.step(self._first.encode()).decode()
        return self.reply

    def final(self, *, nonce: str | None = None, binding: str | None = None, proof: bytes | None = None) -> bytes:
        """Return the final message, with these departures."""
        fields = dict(field.split("=", 1) for field in self.reply.split(","))
        header = self._first[: len(self._first) - len(self._bare)].encode()
        binding = base64.b64encode(header).decode() if binding is None else binding
        bare = f"c={binding},r={fields['r'] if nonce is None else nonce}"
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        stored_key = hashlib.sha256(client_key).digest()
        signature = hmac.digest(stored_key, f"{self._bare},{self.reply},{bare}".encode(), "sha256")
        if proof is None:
            proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def refusal(server: ScramSaslServer, message: bytes) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as failure:
        server.step(message)
    assert server.outcome is None
    return failure.value


@pytest.mark.parametrize("kind", ScramMechanism)
def test_the_oracle_is_authenticated_and_authenticates_the_server(kind: ScramMechanism) -> None:
    server, client = exchange(kind), ScramClient([MECHANISM_NAMES[kind]], "alice", PASSWORD)
    client.set_server_first(server.step(client.get_client_first().encode()).decode())
    assert server.outcome is None
    client.set_server_final(server.step(client.get_client_final().encode()).decode())
    assert server.outcome == Authenticated(Principal("User", "alice"))


@settings(max_examples=20, deadline=None)
@example("a=2C", "=3D")
@example("=3D2C,", ",")
@given(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
)
def test_the_oracle_is_authenticated_with_any_name_and_password(name: str, password: str) -> None:
    known = {(name, SHA_256): credential_of(password, SALT, ITERATIONS, SHA_256)}
    server = ScramSaslServer(SHA_256, users(known), "OURS")
    client = ScramClient(["SCRAM-SHA-256"], name, password)
    client.set_server_first(server.step(client.get_client_first().encode()).decode())
    server.step(client.get_client_final().encode())
    assert server.outcome == Authenticated(Principal("User", name))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80) | st.from_regex(r"[nyp],(a=\w+)?,n=\w+,r=\w+(,\w+=\w+)?", fullmatch=True).map(str.encode))
def test_any_other_message_is_refused_or_answered(message: bytes) -> None:
    server = exchange()
    try:
        server.step(message)
        server.step(message)
    except AuthenticationFailed:
        pass
    assert server.outcome is None


def test_a_wrong_password_is_refused() -> None:
    client = Client(exchange(), password="another")
    client.begin()
    failure = refusal(client.server, client.final())
    assert (failure.message, failure.detail, failure.claimed) == (GENERIC, "the password is wrong", "alice")


def test_an_unknown_user_is_refused_like_a_wrong_password() -> None:
    replies = {Client(exchange(), "n,,n=nobody,r=theirs").begin() for _ in range(3)}
    (reply,) = replies
    _, salt, iterations = reply.split(",")
    assert iterations == f"i={ITERATIONS}"
    assert len(base64.b64decode(salt[2:])) == len(SALT)
    assert Client(exchange(), "n,,n=noone,r=theirs").begin() != reply, "each name has a salt of its own"
    client = Client(exchange(), "n,,n=nobody,r=theirs")
    client.begin()
    failure = refusal(client.server, client.final())
    assert (failure.message, failure.detail) == (GENERIC, "there is no such user")


def test_no_proof_fits_a_decoy() -> None:
    """The stored key of a decoy is known: a client that computes with it is still refused."""
    client = Client(exchange(), "n,,n=nobody,r=theirs")
    client.begin()
    decoy = users().find("nobody", SHA_256)
    assert not decoy.is_real
    for proof in (bytes(32), decoy.credential.stored_key):
        again = Client(exchange(), "n,,n=nobody,r=theirs")
        again.begin()
        refusal(again.server, again.final(proof=proof))


@pytest.mark.parametrize(
    "nonce", ["theirs", "OURS", "theirsOURS2", "theirsour", "theirsoURS", "otherstheirsOURS", "theirstheirstheirsOURS"]
)
def test_the_nonce_is_checked(nonce: str) -> None:
    client = Client(exchange())
    assert client.begin().startswith("r=theirsOURS,")
    assert refusal(client.server, client.final(nonce=nonce)).detail == "the nonce is another one"


def test_the_doubled_nonce_of_older_librdkafka_is_accepted() -> None:
    client = Client(exchange())
    client.begin()
    client.server.step(client.final(nonce="theirstheirsOURS"))
    assert client.server.outcome == Authenticated(Principal("User", "alice"))


def test_a_recorded_exchange_is_of_no_use_again() -> None:
    client = Client(exchange())
    client.begin()
    recorded = client.final()
    client.server.step(recorded)
    other = Client(ScramSaslServer(SHA_256, users(), "OTHER"))
    other.begin()
    refusal(other.server, recorded)


def test_the_channel_binding_is_that_of_the_first_message() -> None:
    client = Client(exchange(), "y,,n=alice,r=theirs")
    client.begin()
    assert "channel binding" in refusal(client.server, client.final(binding="biws")).detail


def test_an_authorization_id_must_be_the_user() -> None:
    same = Client(exchange(), "n,a=alice,n=alice,r=theirs")
    same.begin()
    same.server.step(same.final())
    assert same.server.outcome == Authenticated(Principal("User", "alice"))
    failure = refusal(exchange(), b"n,a=admin,n=alice,r=theirs")
    assert "authorization id" in failure.message


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n,,",
        "n,,n=alice",
        "n,,n=,r=theirs",
        "n,,n=al=ice,r=theirs",
        "n,,n=al\0ice,r=theirs",
        "n,,n=alice,r=",
        "n,,n=alice,r=th\nirs",
        "n,,r=theirs,n=alice",
        "n,,m=x,n=alice,r=theirs",
        "p=tls-unique,,n=alice,r=theirs",
        "x,,n=alice,r=theirs",
        "n,n=alice,r=theirs",
    ],
)
def test_a_malformed_first_message_is_refused(first: str) -> None:
    refusal(exchange(), first.encode())


def test_a_proof_of_another_length_is_refused() -> None:
    for proof in (b"", b"x", bytes(31), bytes(33), bytes(64)):
        client = Client(exchange())
        client.begin()
        refusal(client.server, client.final(proof=proof))
    client = Client(exchange())
    client.begin()
    message = client.final()
    refusal(client.server, message[: message.index(b",p=")] + b",p=====")


def test_a_delegation_token_stands_for_its_owner() -> None:
    credential = credential_of("hmac", SALT, ITERATIONS, SHA_256)
    token = TokenCredential(credential, Principal("User", "owner"), 5000)

    def find(token_id: str, kind: ScramMechanism) -> TokenCredential | None:
        return token if (token_id, kind) == ("token-1", SHA_256) else None

    first = "n,,n=token-1,r=theirs,tokenauth=true"
    assert needs_thread(first.encode())
    client = Client(exchange(find_token=find), first, "hmac")
    client.begin()
    client.server.step(client.final())
    assert client.server.outcome == Authenticated(Principal("User", "owner"), is_token=True, expires_at_ms=5000)
    without = Client(exchange(find_token=find), "n,,n=token-1,r=theirs", "hmac")
    without.begin()
    refusal(without.server, without.final())


def test_a_user_is_no_delegation_token() -> None:
    client = Client(exchange(), "n,,n=alice,r=theirs,tokenauth=true")
    client.begin()
    refusal(client.server, client.final())


def test_a_user_with_the_name_of_a_token_is_a_user() -> None:
    name = f"{TOKEN_USER}token-1"
    of_token = credential_of("hmac", SALT, ITERATIONS, SHA_256)
    token = TokenCredential(of_token, Principal("User", "owner"), 5000)
    known = {(name, SHA_256): credential_of(PASSWORD, SALT, ITERATIONS, SHA_256)}
    for credentials, password, outcome in (
        (known, PASSWORD, Authenticated(Principal("User", name))),
        ({}, "hmac", Authenticated(Principal("User", "owner"), is_token=True, expires_at_ms=5000)),
    ):
        server = ScramSaslServer(SHA_256, users(credentials), "OURS", lambda *_: token)
        client = Client(server, f"n,,n={name},r=theirs", password)
        client.begin()
        server.step(client.final())
        assert server.outcome == outcome


def test_other_extensions_are_ignored() -> None:
    first = "n,,n=alice,r=theirs,color=red"
    assert not needs_thread(first.encode())
    client = Client(exchange(), first)
    client.begin()
    client.server.step(client.final())
    assert client.server.outcome is not None


def test_salts_of_decoys_are_as_long_as_those_of_users() -> None:
    rng = random.Random(1)
    for length in (1, 24, 32, 33, 100):
        known = {("alice", SHA_256): credential_of(PASSWORD, rng.randbytes(length), 8192, SHA_256)}
        decoy = users(known).find("nobody", SHA_256).credential
        assert (len(decoy.salt), decoy.iterations) == (length, 8192)
    assert len(users({}).find("nobody", SHA_256).credential.salt) == 24
