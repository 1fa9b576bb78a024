"""SASL SCRAM with tampered, replayed and malformed messages."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator

from closed_cluster import BYSTANDER, SECRETS
from sasl_client import SaslClient

from attempts.attempt import Attempt, Send, Stranger, refusal_of
from attempts.exchanges import GUESS, SCRAM, kafka, with_client


class ScramClient:
    """The client side of SCRAM with every part of its messages open to change."""

    def __init__(self, user: str, password: str, gs2: str = "n,,") -> None:
        self.user, self.password, self.gs2, self.bare = user, password, gs2, f"n={user},r=nonce"
        self.iterations = 0
        """The iterations of the proof; 0 for those that the broker names."""

    def first(self, client: SaslClient) -> tuple[str, str]:
        """Send the first message. Return the broker's, and its nonce."""
        (answer,) = client.authenticate(SCRAM, (self.gs2 + self.bare).encode())
        text = answer.decode()
        return text, text.partition(",")[0][2:]

    def final(self, first: str, nonce: str, binding: str = "biws", signed: str = "") -> bytes:
        """Return the final message. The proof covers `signed`, if it is given, in place of the real messages."""
        _, salt, iterations = (part[2:] for part in first.split(","))
        rounds = self.iterations or int(iterations)
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), base64.b64decode(salt), rounds)
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c={binding},r={nonce}"
        covered = (signed or f"{self.bare},{first},{final}").encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), covered, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


def _scram(password: str, change: Callable[[ScramClient, str, str], bytes], **options: str) -> Send:
    """Return what sends a final message that `change` makes of the broker's first message and its nonce."""

    def do(client: SaslClient) -> None:
        scram = ScramClient(BYSTANDER, password, **options)
        first, nonce = scram.first(client)
        client.step(change(scram, first, nonce))

    return with_client(do)


def _fewer_iterations(scram: ScramClient, first: str, nonce: str) -> bytes:
    scram.iterations = 1
    return scram.final(first, nonce)


def _replayed(stranger: Stranger) -> str:
    with stranger.kafka() as honest, stranger.kafka() as replaying:
        scram = ScramClient(BYSTANDER, SECRETS[BYSTANDER])
        final = scram.final(*scram.first(honest))
        honest.step(final)
        scram.first(replaying)
        return refusal_of(lambda: replaying.step(final))


def _first_message(message: bytes) -> Send:
    return with_client(lambda client: client.authenticate(SCRAM, message))


def _without_proof(client: SaslClient) -> None:
    _, nonce = (scram := ScramClient(BYSTANDER, GUESS)).first(client)
    assert scram.user == BYSTANDER
    client.step(f"c=biws,r={nonce}".encode())


def _of_messages() -> Iterator[Attempt]:
    password = SECRETS[BYSTANDER]
    wrong = {"principal": f"User:{BYSTANDER}"}
    yield kafka(
        "SCRAM: a wrong password",
        _scram(GUESS, lambda scram, first, nonce: scram.final(first, nonce)),
        "the password is wrong",
        **wrong,
    )
    yield kafka("SCRAM: an unknown user", _unknown_user, "there is no such user")
    yield kafka(
        "SCRAM: another nonce",
        _scram(password, lambda scram, first, nonce: scram.final(first, nonce + "x")),
        "the nonce is another one",
        **wrong,
    )
    yield kafka(
        "SCRAM: the client's nonce alone",
        _scram(password, lambda scram, first, _: scram.final(first, "nonce")),
        "the nonce is another one",
        **wrong,
    )
    yield kafka(
        "SCRAM: an empty nonce",
        _scram(password, lambda scram, first, _: scram.final(first, "")),
        "the client-final-message is malformed",
        **wrong,
    )
    yield kafka(
        "SCRAM: another channel binding",
        _scram(password, lambda scram, first, nonce: scram.final(first, nonce, "eSws")),
        "channel binding",
        **wrong,
    )
    yield kafka("SCRAM: a channel binding that does not exist", _first_message(b"p=tls-unique,,n=e,r=x"), "malformed")
    yield kafka(
        "SCRAM: the authorization id of another",
        _first_message(f"n,a=admin,n={BYSTANDER},r=x".encode()),
        "authorization id that is different",
        **wrong,
    )
    yield kafka("SCRAM: a mandatory extension", _first_message(b"n,,m=x,n=e,r=x"), "malformed")
    yield kafka("SCRAM: no nonce", _first_message(b"n,,n=e"), "malformed")
    yield kafka("SCRAM: no user", _first_message(b"n,,n=,r=x"), "malformed")
    yield kafka("SCRAM: not UTF-8", _first_message(b"n,,n=\xff,r=x"), "not UTF-8")


def _of_proofs() -> Iterator[Attempt]:
    password = SECRETS[BYSTANDER]
    wrong = {"principal": f"User:{BYSTANDER}"}
    yield kafka("SCRAM: no proof", with_client(_without_proof), "the client-final-message is malformed", **wrong)
    yield kafka(
        "SCRAM: a proof of one iteration",
        _scram(password, _fewer_iterations),
        "the password is wrong",
        **wrong,
    )
    yield kafka(
        "SCRAM: iterations replaced in the signed messages",
        _scram(
            password,
            lambda scram, first, nonce: scram.final(
                first, nonce, signed=f"{scram.bare},{first.replace('i=4096', 'i=1')},c=biws,r={nonce}"
            ),
        ),
        "the password is wrong",
        **wrong,
    )
    yield kafka(
        "SCRAM: an empty proof",
        _scram(password, lambda _, __, nonce: f"c=biws,r={nonce},p=".encode()),
        "malformed",
        **wrong,
    )
    yield kafka(
        "SCRAM: a proof of zeros",
        _scram(password, lambda _, __, nonce: f"c=biws,r={nonce},p={'A' * 43}=".encode()),
        "the password is wrong",
        **wrong,
    )
    yield kafka(
        "SCRAM: a short proof",
        _scram(password, lambda _, __, nonce: f"c=biws,r={nonce},p=AAAA".encode()),
        "the password is wrong",
        **wrong,
    )
    yield kafka("SCRAM: a replayed final message", _replayed, "the nonce is another one", **wrong)
    yield kafka("SCRAM: the credential of the other hash", with_client(_other_hash), "there is no such user", **wrong)


def _unknown_user(stranger: Stranger) -> str:
    with stranger.kafka() as client:
        return refusal_of(lambda: client.scram("nobody", GUESS))


def _other_hash(client: SaslClient) -> None:
    client.scram(BYSTANDER, SECRETS[BYSTANDER], hash_name="sha512")


SCRAM_ATTEMPTS = (*_of_messages(), *_of_proofs())
