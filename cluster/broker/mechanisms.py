"""The SASL mechanisms of this broker, on the users and tokens of its cluster."""

import hashlib
import random
from collections.abc import Callable, Mapping

from cordwood.cluster.broker.credentials import Credentials
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.sasl.mechanisms import SaslMechanism, oauthbearer, plain, scram
from cordwood.cluster.security.sasl.users import Users

NONCE_BYTES = 24


def mechanisms_of(
    settings: Settings, image: Callable[[], Image], rng: random.Random, credentials: Credentials
) -> Mapping[str, SaslMechanism]:
    """Return the mechanisms by name. `rng` is a strong source, for nonces."""
    users = users_of(settings, image)

    def nonce() -> str:
        return rng.randbytes(NONCE_BYTES).hex()

    known = (
        plain(users),
        *(scram(kind, users, nonce, credentials.tokens.credential) for kind in ScramMechanism),
        oauthbearer(credentials.bearer.validate),
    )
    return {mechanism.name: mechanism for mechanism in known}


def users_of(settings: Settings, image: Callable[[], Image]) -> Users:
    """Return the users of the cluster. The salt of a decoy is the same on all brokers that share a secret."""
    secret = hashlib.sha256(f"{settings.cluster_id} {settings.controller_quorum_secret}".encode()).digest()
    return Users(lambda: image().scram_credentials, secret)
