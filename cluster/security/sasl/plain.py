"""SASL PLAIN, server side (RFC 4616). The password is checked against the user's SCRAM credential."""

from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.principal import USER, Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.sasl.scram_keys import is_password_of
from cordwood.cluster.security.sasl.users import Users

PLAIN = "PLAIN"


class PlainSaslServer:
    """One attempt. Its step takes milliseconds: run it in a thread."""

    def __init__(self, users: Users) -> None:
        self.mechanism = PLAIN
        self.outcome: Authenticated | None = None
        self._users = users

    def step(self, message: bytes) -> bytes:
        try:
            words = message.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(words) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(words)}")
        authzid, user, password = words
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified", claimed=user)
        found = self._users.find(user, ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        # A decoy takes as long as a credential: the time does not say whether the user exists.
        if not (is_password_of(password, found.credential, found.mechanism) & found.is_real):
            detail = "the password is wrong" if found.is_real else "there is no such user"
            raise AuthenticationFailed("Authentication failed: Invalid username or password", detail, user)
        if authzid and authzid != user:
            message_of_kafka = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise AuthenticationFailed(message_of_kafka, claimed=user)
        self.outcome = Authenticated(Principal(USER, user))
        return b""
