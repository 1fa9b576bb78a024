"""Bearer tokens of the identity provider in the configuration: its keys, and the validation with them."""

from typing import TYPE_CHECKING

import structlog

from cordwood.cluster.broker.environment import Environment
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.security.bearer import BearerToken, TokenRefused, ValidateToken, rules_of, unchecked_claims

if TYPE_CHECKING:
    from cordwood.cluster.broker.jwks_reader import JwksReader

_events = structlog.get_logger("jwks")


class BearerTokens:
    """Validates tokens with the provider's keys, which it keeps up to date from `start` to `close`."""

    def __init__(self, settings: Settings, environment: Environment) -> None:
        """Raises OSError if the certificate authorities of the provider's address cannot be read."""
        self._reader: JwksReader | None = None
        self.validate: ValidateToken = _refuse
        """Returns the claims of a token. Raises TokenRefused. It never blocks."""
        if settings.sasl_oauthbearer_jwks_endpoint_url:
            self.validate = self._open(settings, environment)
            for sentence in unchecked_claims(settings):
                _events.warning("jwks.unchecked", reason=sentence)

    async def start(self) -> None:
        """Begin to read the keys. Return once they are known, or after a few seconds."""
        if self._reader is not None:
            await self._reader.start()

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    def _open(self, settings: Settings, environment: Environment) -> ValidateToken:
        # Only a broker with an identity provider loads the libraries for keys and signatures.
        from cordwood.cluster.broker.jwks_reader import JwksReader, fetch_of
        from cordwood.cluster.security.jwks import KeyCache, RefreshTimes
        from cordwood.cluster.security.jwt import validate

        times = RefreshTimes(
            settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000,
            settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
        )
        url, run_blocking = settings.sasl_oauthbearer_jwks_endpoint_url, environment.run_blocking
        authorities = settings.sasl_oauthbearer_jwks_endpoint_ssl_truststore_location
        keys, rules = KeyCache(times, environment.rng), rules_of(settings)
        self._reader = JwksReader(url, fetch_of(url, run_blocking, authorities), keys, run_blocking)
        return lambda token: validate(token, keys, rules, environment.wall_clock())


def _refuse(_token: str) -> BearerToken:
    raise TokenRefused("the broker has no identity provider: sasl.oauthbearer.jwks.endpoint.url is not set")
