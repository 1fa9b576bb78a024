"""The client side of SASL authentication, without I/O: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.

A transport sends the request of `SaslDialog.begin`, passes each response to `SaslDialog.next`, and sends the request
that it returns, until there is none. The same steps authenticate a connection again (KIP-368).
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from typing import Any, Protocol

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v1.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from cordwood.client.credentials import HASHES, Mechanism, NotAuthenticated, SaslCredentials

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 1_000_000
"""Fewer iterations would show a weak hash of the password to a false broker; more would keep the client busy."""

_NONCE_BYTES = 24
_GS2_HEADER = "n,,"
"""No channel binding, and no authorization id: a client acts as the user that it authenticates as."""
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9]\d{0,8})(?:,.*)?"
)
_SERVER_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9+/=]+)(?:,.*)?")
_BEARER_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_KEY_VALUE_SEPARATOR = "\x01"


class SaslDialog:
    """One authentication of one connection: a SaslHandshake, and the SaslAuthenticate requests of its mechanism.

    A step of SCRAM takes some 10 ms of CPU time; an event loop runs it in a thread.
    """

    def __init__(self, credentials: SaslCredentials) -> None:
        self._mechanism = credentials.mechanism
        self._exchange = exchange_of(credentials)
        self.session_lifetime_ms = 0
        """After this time the broker expects another authentication; 0 for never."""

    def begin(self) -> SaslHandshakeRequest:
        """Return the first request."""
        return SaslHandshakeRequest(mechanism=str(self._mechanism))

    def next(self, response: Any) -> SaslAuthenticateRequest | None:
        """Take the response to the last request. Return the next request; None once both sides are authenticated.

        Raises NotAuthenticated.
        """
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code is not ErrorCode.none:
            said = response.error_message or response.error_code.name.upper()
            raise NotAuthenticated(f"authentication with {self._mechanism} failed: {said}")
        reply = self._exchange.next(bytes(response.auth_bytes))
        if reply is not None:
            return SaslAuthenticateRequest(auth_bytes=reply)
        self.session_lifetime_ms = round(response.session_lifetime.total_seconds() * 1000)
        return None

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code is ErrorCode.none:
            return
        if response.error_code is ErrorCode.unsupported_sasl_mechanism:
            offered = ", ".join(response.mechanisms) or "none"
            raise NotAuthenticated(f"the broker does not take {self._mechanism} here; its mechanisms are: {offered}")
        raise NotAuthenticated(f"the broker refused to authenticate the client: {response.error_code.name.upper()}")


class Exchange(Protocol):
    """The messages of one mechanism, from the client's side."""

    def first(self) -> bytes:
        """Return the first message. Raises NotAuthenticated if the credentials do not fit the mechanism."""
        ...

    def next(self, message: bytes) -> bytes | None:
        """Take a message of the broker. Return the reply; None if the exchange is complete. Raises NotAuthenticated."""
        ...


def exchange_of(credentials: SaslCredentials) -> Exchange:
    """Return the exchange of the credentials' mechanism."""
    if credentials.mechanism is Mechanism.PLAIN:
        return PlainExchange(credentials)
    if credentials.mechanism is Mechanism.OAUTHBEARER:
        return BearerExchange(credentials)
    return ScramExchange(credentials)


class PlainExchange:
    """PLAIN (RFC 4616): the password as it is, so that only TLS protects it."""

    def __init__(self, credentials: SaslCredentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        """Return user and password."""
        user, password = self._credentials.username, self._credentials.password
        if "\0" in user + password:
            raise NotAuthenticated("a user name or password of PLAIN cannot have a NUL character")
        return f"\0{user}\0{password}".encode()

    def next(self, message: bytes) -> None:
        """End the exchange: the broker proves nothing."""


class ScramExchange:
    """SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password, and neither shows it."""

    def __init__(self, credentials: SaslCredentials, nonce: str | None = None) -> None:
        """Take the credentials. `nonce` is random unless given."""
        self._credentials, self._hash = credentials, HASHES[credentials.mechanism]
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        escaped = credentials.username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if credentials.is_delegation_token else ""
        self._client_first = f"n={escaped},r={self._nonce}{extension}"
        self._server_signature = b""
        """The proof that is due from the broker; empty before the client's own."""

    def first(self) -> bytes:
        """Return the user and the nonce."""
        return f"{_GS2_HEADER}{self._client_first}".encode()

    def next(self, message: bytes) -> bytes | None:
        """Prove the password to the broker; then check the broker's proof."""
        if not self._server_signature:
            return self._prove(message)
        self._check_server(message)
        return None

    def _prove(self, message: bytes) -> bytes:
        text, match = _parsed(message, _SERVER_FIRST)
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise NotAuthenticated("the broker's nonce does not extend the client's")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise NotAuthenticated(f"the broker asks for {iterations} iterations: {ITERATIONS_MIN} are the least")
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._credentials.password.encode(), _decoded(match["salt"]), iterations
        )
        without_proof = f"c={_encoded(_GS2_HEADER.encode())},r={nonce}"
        signed = f"{self._client_first},{text},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        client_signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(key ^ signature for key, signature in zip(client_key, client_signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={_encoded(proof)}".encode()

    def _check_server(self, message: bytes) -> None:
        _, match = _parsed(message, _SERVER_FINAL)
        if not hmac.compare_digest(_decoded(match["signature"]), self._server_signature):
            raise NotAuthenticated("the broker does not know the password that it has taken: it is not the broker")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


class BearerExchange:
    """OAUTHBEARER (RFC 7628): a token that an identity provider has signed."""

    def __init__(self, credentials: SaslCredentials) -> None:
        self._credentials = credentials
        self._refusal = ""
        """The broker's reason, from the first round of a refusal; the second one has the error code."""

    def first(self) -> bytes:
        """Return the token and the extensions."""
        # The token is not in the message, which may be logged.
        if not _BEARER_TOKEN.fullmatch(self._credentials.bearer_token):
            raise NotAuthenticated("the OAUTHBEARER token is empty or has characters that a token cannot have")
        pairs = [("auth", f"Bearer {self._credentials.bearer_token}"), *self._credentials.extensions]
        if any(_KEY_VALUE_SEPARATOR in name + value for name, value in pairs):
            raise NotAuthenticated("an OAUTHBEARER extension cannot have control characters")
        fields = "".join(f"{name}={value}{_KEY_VALUE_SEPARATOR}" for name, value in pairs)
        return f"{_GS2_HEADER}{_KEY_VALUE_SEPARATOR}{fields}{_KEY_VALUE_SEPARATOR}".encode()

    def next(self, message: bytes) -> bytes | None:
        """End the exchange, or acknowledge a refusal, so that the broker sends its error."""
        if self._refusal:
            raise NotAuthenticated(f"the broker refused the OAUTHBEARER token: {self._refusal}")
        if not message:
            return None
        try:
            status = json.loads(message)["status"]
        except (ValueError, TypeError, KeyError):
            status = "without a reason"
        self._refusal = str(status)
        return _KEY_VALUE_SEPARATOR.encode()


def _parsed(message: bytes, pattern: re.Pattern[str]) -> tuple[str, re.Match[str]]:
    """Return the text of a SCRAM message of the broker, and its match. Raises NotAuthenticated."""
    text = message.decode(errors="replace")
    match = pattern.fullmatch(text)
    if match:
        return text, match
    if text.startswith("e="):
        raise NotAuthenticated(f"the broker refused the authentication: {text[2:]}")
    raise NotAuthenticated("the broker sent a malformed SCRAM message")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise NotAuthenticated("the broker sent a malformed SCRAM message") from None


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
