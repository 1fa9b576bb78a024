"""SCRAM keys of passwords (RFC 5802, section 3; RFC 7677). PBKDF2 takes milliseconds: run it in a thread."""

import hashlib
import hmac

from cordwood.cluster.metadata.credentials import ScramCredential, ScramMechanism

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""Bounds of the iterations of a credential, as in Kafka."""

HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
MECHANISM_NAMES = {mechanism: mechanism.name.replace("_", "-") for mechanism in ScramMechanism}


def credential_of(password: str, salt: bytes, iterations: int, mechanism: ScramMechanism) -> ScramCredential:
    """Return the credential of a password."""
    salted_password = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(salted_password, salt, iterations, mechanism)


def credential_of_salted(
    salted_password: bytes, salt: bytes, iterations: int, mechanism: ScramMechanism
) -> ScramCredential:
    """Return the credential of a salted password, from which the salted password cannot be computed."""
    hash_name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    return ScramCredential(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


def is_password_of(password: str, credential: ScramCredential, mechanism: ScramMechanism) -> bool:
    """Return whether the credential is the password's. The time does not depend on the outcome."""
    own = credential_of(password, credential.salt, credential.iterations, mechanism)
    return hmac.compare_digest(own.stored_key, credential.stored_key)
