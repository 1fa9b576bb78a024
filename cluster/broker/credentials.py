"""Credentials outside the SCRAM users: delegation tokens, and the bearer tokens of an identity provider."""

from collections.abc import Callable

from cordwood.cluster.broker.bearer_tokens import BearerTokens
from cordwood.cluster.broker.environment import Environment
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.delegation_tokens import DelegationTokens


class Credentials:
    """The credentials against which clients are checked."""

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
