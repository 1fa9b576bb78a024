"""Credentials of clients (users, delegation tokens, bearer tokens), and the SASL mechanisms that check them."""

import hashlib
import random
from collections.abc import Callable, Mapping

from cordwood.cluster.broker.bearer_tokens import BearerTokens
from cordwood.cluster.broker.environment import Environment
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.delegation_tokens import DelegationTokens
from cordwood.cluster.security.sasl.mechanisms import SaslMechanism, oauthbearer, plain, scram
from cordwood.cluster.security.sasl.users import Users

NONCE_BYTES = 24


class Credentials:
    """The credentials of clients besides the SCRAM users, which are in the metadata."""

    def __init__(self, settings: Settings, environment: Environment, image: Callable[[], Image]) -> None:
        """Raises OSError if a file of the configuration cannot be read."""
        self.tokens = DelegationTokens(settings.delegation_token_secret_key, image, environment.wall_clock)
        self.bearer = BearerTokens(settings, environment)

    async def start(self) -> None:
        """Load the credentials that are not in the metadata.

        Returns after a few seconds, even if an identity provider is down.
        """
        await self.bearer.start()

    async def close(self) -> None:
        await self.bearer.close()


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
