"""SASL SCRAM-SHA-256 and SCRAM-SHA-512, server side (RFC 5802, RFC 7677), with delegation tokens (KIP-48).

| step | client | server |
|---|---|---|
| first | `n,,n=USER,r=NONCE` | `r=NONCE+OURS,s=SALT,i=ITERATIONS` |
| final | `c=biws,r=NONCE+OURS,p=PROOF` | `v=SIGNATURE` |

An unknown user gets a decoy's salt in the first step, and is refused in the final one like a wrong password.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from cordwood.cluster.metadata.credentials import ScramCredential, ScramMechanism
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.sasl.scram_keys import HASHES, MECHANISM_NAMES
from cordwood.cluster.security.sasl.users import Users

_NONCE = r"[!-+\--~]+"
_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_TOKEN_EXTENSION = ("tokenauth", "true")
TOKEN_USER = "delegation-token:"
"""Before a token id in place of a user, from clients without extensions such as librdkafka's."""


class TokenCredential(NamedTuple):
    """The SCRAM credential of a delegation token, the principal that it stands for, and its end."""

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


FindToken = Callable[[str, ScramMechanism], TokenCredential | None]
"""Returns the credential of a valid token by its id; None if there is none. Runs in a thread."""


def no_tokens(_token_id: str, _mechanism: ScramMechanism) -> None:
    """Return None: there are no delegation tokens."""


class ScramSaslServer:
    """One attempt. `nonce` is the server's part: printable characters without a comma, from a strong source.

    The client's final message repeats the nonce of both sides. librdkafka before 2.6.1, and with it most kcat, puts its
    own part in front once more. That is accepted too: the message still has the whole nonce, and the proof covers it.
    """

    def __init__(self, mechanism: ScramMechanism, users: Users, nonce: str, find_token: FindToken = no_tokens) -> None:
        self.mechanism = MECHANISM_NAMES[mechanism]
        self.outcome: Authenticated | None = None
        self._kind, self._users, self._own_nonce, self._find_token = mechanism, users, nonce, find_token
        self._name = self._client_nonce = self._nonce = self._binding = self._messages = ""
        self._credential: ScramCredential | None = None
        self._promised = Authenticated(Principal(USER, ""))
        self._is_real = False

    def step(self, message: bytes) -> bytes:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._failed("the message is not UTF-8") from None
        if self._credential is None:
            return self._first(text).encode()
        return self._final(text, self._credential).encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise self._failed("the client-first-message is malformed")
        self._name = _unescaped(match["name"])
        if match["authzid"] is not None and _unescaped(match["authzid"]) != self._name:
            message = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationFailed(message, claimed=self._name)
        credential = self._find(_extensions(match["extensions"]))
        self._binding = base64.b64encode(match["gs2"].encode()).decode()
        self._client_nonce = match["nonce"]
        self._nonce = self._client_nonce + self._own_nonce
        salt = base64.b64encode(credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = f"{match['bare']},{reply},"
        self._credential = credential
        return reply

    def _find(self, extensions: dict[str, str]) -> ScramCredential:
        """Return the credential of the user, or of the token if the client names one by extension or user name.

        A token id alone is no user, so that a mistaken client does not use a token as a password.
        """
        found = self._users.find(self._name, self._kind)
        credential, self._is_real = found.credential, found.is_real
        self._promised = Authenticated(Principal(USER, self._name))
        name, value = _TOKEN_EXTENSION
        has_extension = extensions.get(name, "").lower() == value
        if has_extension or (self._name.startswith(TOKEN_USER) and not found.is_real):
            token = self._find_token(self._name if has_extension else self._name[len(TOKEN_USER) :], self._kind)
            self._is_real = token is not None
            if token is not None:
                credential = token.credential
                self._promised = Authenticated(token.owner, is_token=True, expires_at_ms=token.expires_at_ms)
        return credential

    def _final(self, text: str, credential: ScramCredential) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise self._failed("the client-final-message is malformed")
        if match["nonce"] not in (self._nonce, self._client_nonce + self._nonce):
            raise self._failed("the nonce is another one")
        if match["binding"] != self._binding:
            raise self._failed("the channel binding is not that of the client-first-message")
        signed = (self._messages + match["bare"]).encode()
        if not (self._is_proved(_decoded(match["proof"]), signed, credential) & self._is_real):
            raise self._failed("the password is wrong" if self._is_real else "there is no such user")
        self.outcome = self._promised
        return "v=" + base64.b64encode(hmac.digest(credential.server_key, signed, HASHES[self._kind])).decode()

    def _is_proved(self, proof: bytes, signed: bytes, credential: ScramCredential) -> bool:
        hash_name = HASHES[self._kind]
        signature = hmac.digest(credential.stored_key, signed, hash_name)
        if len(proof) != len(signature):
            return False
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), credential.stored_key)

    def _failed(self, detail: str) -> AuthenticationFailed:
        """Return a failure whose message is the same for each reason, in Kafka's words."""
        message = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        return AuthenticationFailed(f"{message} {self.mechanism}", detail, self._name)


def needs_thread(message: bytes) -> bool:
    """Return whether a step may compute a token's credential, which takes milliseconds."""
    return b",tokenauth=" in message.lower() or b"n=" + TOKEN_USER.encode() in message


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _extensions(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name.lower(): value for name, _, value in pairs}


def _decoded(text: str) -> bytes:
    """Decode base64. Return nothing for an invalid text, which no proof is."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
