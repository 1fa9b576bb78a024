"""Users with SCRAM credentials, and decoys for unknown names, so that an answer does not show whether a user exists."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from cordwood.cluster.metadata.credentials import ScramCredential, ScramMechanism
from cordwood.cluster.security.sasl.scram_keys import HASHES, ITERATIONS_MIN

Credentials = Mapping[tuple[str, ScramMechanism], ScramCredential]

SALT_BYTES = 24
_SEARCHED_MAX = 100
_USUAL = ScramCredential(bytes(SALT_BYTES), b"", b"", ITERATIONS_MIN)


class FoundCredential(NamedTuple):
    """The credential of a name. Without `is_real` it is a decoy, which no password fits."""

    credential: ScramCredential
    mechanism: ScramMechanism
    is_real: bool


class Users:
    """The users of a cluster, as the newest image has them."""

    def __init__(self, credentials: Callable[[], Credentials], secret: bytes) -> None:
        """`secret` makes the salts of decoys. It is the same on all brokers: a user has one salt on all of them."""
        self._credentials, self._secret = credentials, secret

    def find(self, name: str, *mechanisms: ScramMechanism) -> FoundCredential:
        """Return a user's credential of the first mechanism that it has one of; a decoy of the first one otherwise."""
        credentials = self._credentials()
        for mechanism in mechanisms:
            credential = credentials.get((name, mechanism))
            if credential is not None:
                return FoundCredential(credential, mechanism, is_real=True)
        return FoundCredential(self._decoy(name, mechanisms[0], credentials), mechanisms[0], is_real=False)

    def _decoy(self, name: str, mechanism: ScramMechanism, credentials: Credentials) -> ScramCredential:
        """Return a credential that looks like the others: a salt as long as theirs, and as many iterations."""
        first = islice(credentials.items(), _SEARCHED_MAX)
        like = next((credential for (_, other), credential in first if other is mechanism), _USUAL)
        digest = hashlib.new(HASHES[mechanism])
        salt = b""
        while len(salt) < len(like.salt):
            salt += hmac.digest(self._secret, f"{mechanism} {len(salt)} {name}".encode(), "sha256")
        key = bytes(digest.digest_size)
        return ScramCredential(salt[: len(like.salt)], key, key, like.iterations)
