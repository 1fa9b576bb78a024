"""The client side of SASL: each mechanism against a server, and what a false or broken server sends."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from scramp import ScramException, ScramMechanism

from cordwood.client.credentials import HASHES, Mechanism, NotAuthenticated, SaslCredentials
from cordwood.client.sasl import BearerExchange, PlainExchange, SaslDialog, ScramExchange

SCRAM_MECHANISMS = tuple(HASHES)
ALICE = SaslCredentials(Mechanism.SCRAM_SHA_256, "alice", "a password")
CHALLENGE = "r={nonce}server,s=c2FsdCBvZiBhIHVzZXI=,i={iterations}"


class ScrampServer:
    """The server side of SCRAM by another library, for one user."""

    def __init__(self, mechanism: Mechanism, password: str, iterations: int = 4096) -> None:
        scram = ScramMechanism(str(mechanism))
        info = scram.make_auth_info(password, iterations)
        self.users: list[str] = []

        def find(user: str) -> Any:
            self.users.append(user)
            return info

        self._server = scram.make_server(find)

    def first(self, message: bytes) -> bytes:
        self._server.set_client_first(message.decode())
        return bytes(self._server.get_server_first(), "utf-8")

    def final(self, message: bytes) -> bytes:
        self._server.set_client_final(message.decode())
        return bytes(self._server.get_server_final(), "utf-8")


def challenge(first: bytes, iterations: int | str = 4096) -> bytes:
    """Return the challenge of a server to a client's first message."""
    nonce = first.decode().partition(",r=")[2].partition(",")[0]
    return CHALLENGE.format(nonce=nonce, iterations=iterations).encode()


def shaken(code: ErrorCode = ErrorCode.none, mechanisms: tuple[str, ...] = ()) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)


def replied(
    message: bytes = b"", code: ErrorCode = ErrorCode.none, said: str | None = None, lifetime_ms: int = 0
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=code,
        error_message=said,
        auth_bytes=message,
        session_lifetime=timedelta(milliseconds=lifetime_ms),
    )


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C,=3D", "Ødegård"])
def test_scram_proves_both_sides(mechanism: Mechanism, user: str) -> None:
    client = ScramExchange(SaslCredentials(mechanism, user, "p=a,s s"))
    server = ScrampServer(mechanism, "p=a,s s", 8192)
    proof = client.next(server.first(client.first()))
    assert proof is not None
    assert client.next(server.final(proof)) is None
    assert server.users == [user]


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_scram_with_a_wrong_password_is_refused(mechanism: Mechanism) -> None:
    client = ScramExchange(SaslCredentials(mechanism, "alice", "another"))
    server = ScrampServer(mechanism, "a password")
    proof = client.next(server.first(client.first()))
    assert proof is not None
    with pytest.raises(ScramException):
        server.final(proof)


def test_scram_sends_what_the_rfc_has_as_its_example() -> None:
    client = ScramExchange(SaslCredentials(Mechanism.SCRAM_SHA_256, "user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = client.next(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert proof == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_a_delegation_token_is_an_extension_of_scram() -> None:
    token = SaslCredentials(Mechanism.SCRAM_SHA_512, "token-id", "aG1hYw==", is_delegation_token=True)
    assert ScramExchange(token, "nonce").first() == b"n,,n=token-id,r=nonce,tokenauth=true"


def test_two_exchanges_have_different_nonces() -> None:
    assert ScramExchange(ALICE).first() != ScramExchange(ALICE).first()


@pytest.mark.parametrize("nonce", ["", "another", "{own}", "another{own}"])
def test_a_nonce_that_does_not_extend_the_own_is_refused(nonce: str) -> None:
    client = ScramExchange(ALICE, "own")
    client.first()
    text = f"r={nonce.format(own='own')},s=c2FsdCBvZiBhIHVzZXI=,i=4096"
    with pytest.raises(NotAuthenticated):
        client.next(text.encode())


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, "04096", "-4096", "4_096"])
def test_iterations_out_of_bounds_are_refused(iterations: int | str) -> None:
    client = ScramExchange(ALICE)
    with pytest.raises(NotAuthenticated):
        client.next(challenge(client.first(), iterations))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"v=",
        b"v=AAAA",
        b"v=" + base64.b64encode(bytes(32)),
        b"v=!",
        b"e=other-error",
        b"x=1",
        b"\xff",
    ],
)
def test_a_server_without_the_right_signature_is_refused(message: bytes) -> None:
    client = ScramExchange(ALICE)
    assert client.next(challenge(client.first())) is not None
    with pytest.raises(NotAuthenticated):
        client.next(message)


def test_a_signature_in_place_of_the_challenge_is_refused() -> None:
    client = ScramExchange(ALICE)
    client.first()
    with pytest.raises(NotAuthenticated, match="malformed"):
        client.next(b"v=" + base64.b64encode(bytes(32)))


def test_a_mandatory_extension_is_refused() -> None:
    client = ScramExchange(ALICE)
    with pytest.raises(NotAuthenticated, match="malformed"):
        client.next(b"m=unknown," + challenge(client.first()))


def test_plain_sends_user_and_password() -> None:
    client = PlainExchange(SaslCredentials(Mechanism.PLAIN, "alice", "pässword"))
    assert client.first() == "\0alice\0pässword".encode()


def test_plain_cannot_have_a_separator_in_a_name() -> None:
    with pytest.raises(NotAuthenticated):
        PlainExchange(SaslCredentials(Mechanism.PLAIN, "alice\0admin", "p")).first()


def test_a_bearer_token_and_its_extensions() -> None:
    client = BearerExchange(
        SaslCredentials(Mechanism.OAUTHBEARER, bearer_token="a.b-c.d_e", extensions=(("cluster", "x"),))
    )
    assert client.first() == b"n,,\x01auth=Bearer a.b-c.d_e\x01cluster=x\x01\x01"
    assert client.next(b"") is None


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "a\n"])
def test_what_is_no_bearer_token_is_not_sent(token: str) -> None:
    with pytest.raises(NotAuthenticated) as failed:
        BearerExchange(SaslCredentials(Mechanism.OAUTHBEARER, bearer_token=token)).first()
    assert not token or token not in str(failed.value)


def test_a_refused_bearer_token_takes_two_rounds() -> None:
    dialog = SaslDialog(SaslCredentials(Mechanism.OAUTHBEARER, bearer_token="a.b.c"))
    dialog.begin()
    dialog.next(shaken())
    acknowledged = dialog.next(replied(b'{"status":"invalid_token"}'))
    assert acknowledged is not None
    assert acknowledged.auth_bytes == b"\x01"
    with pytest.raises(NotAuthenticated, match="it has expired"):
        dialog.next(replied(code=ErrorCode.sasl_authentication_failed, said="it has expired"))


def test_a_refused_bearer_token_is_not_accepted_in_the_second_round() -> None:
    client = BearerExchange(SaslCredentials(Mechanism.OAUTHBEARER, bearer_token="a.b.c"))
    client.first()
    client.next(b"no JSON")
    with pytest.raises(NotAuthenticated, match="without a reason"):
        client.next(b"")


def test_a_dialog_from_handshake_to_session() -> None:
    dialog, server = SaslDialog(ALICE), ScrampServer(Mechanism.SCRAM_SHA_256, "a password")
    assert dialog.begin().mechanism == "SCRAM-SHA-256"
    first = dialog.next(shaken(mechanisms=("PLAIN", "SCRAM-SHA-256")))
    assert first is not None
    proof = dialog.next(replied(server.first(first.auth_bytes)))
    assert proof is not None
    assert dialog.next(replied(server.final(proof.auth_bytes), lifetime_ms=60_000)) is None
    assert dialog.session_lifetime_ms == 60_000


def test_a_success_without_the_servers_proof_is_refused() -> None:
    dialog = SaslDialog(ALICE)
    dialog.begin()
    dialog.next(shaken())
    with pytest.raises(NotAuthenticated):
        dialog.next(replied())


def test_an_unknown_mechanism_names_those_of_the_listener() -> None:
    dialog = SaslDialog(ALICE)
    dialog.begin()
    with pytest.raises(NotAuthenticated, match="SCRAM-SHA-256 here; its mechanisms are: PLAIN, OAUTHBEARER"):
        dialog.next(shaken(ErrorCode.unsupported_sasl_mechanism, ("PLAIN", "OAUTHBEARER")))


def test_a_refusal_has_the_brokers_reason() -> None:
    dialog = SaslDialog(ALICE)
    dialog.begin()
    dialog.next(shaken())
    with pytest.raises(NotAuthenticated, match="with SCRAM-SHA-256 failed: invalid credentials"):
        dialog.next(replied(code=ErrorCode.sasl_authentication_failed, said="invalid credentials"))


def test_the_repr_has_no_secret() -> None:
    secret = SaslCredentials(
        Mechanism.OAUTHBEARER, "alice", "s3cret", bearer_token="s3cret", extensions=(("logicalCluster", "s3cret"),)
    )
    assert "s3cret" not in repr(secret)
    assert "s3cret" not in str(secret)
