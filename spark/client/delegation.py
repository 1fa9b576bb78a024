"""Delegation tokens (KIP-48): the driver obtains one, so that executors need no credentials of the user."""

import base64
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from kio.schema.create_delegation_token.v2 import CreateDelegationTokenRequest
from kio.schema.describe_delegation_token.v2 import DescribeDelegationTokenRequest
from kio.schema.describe_delegation_token.v2.request import DescribeDelegationTokenOwner

from cordwood.client.credentials import HASHES, Mechanism, SaslCredentials
from cordwood.client.security import OPEN, ClientSecurity
from cordwood.spark.client.backoff import Backoff
from cordwood.spark.client.cluster import ClusterReader, check_code
from cordwood.spark.client.connection import BrokerConnection, ConnectionFailed
from cordwood.spark.client.settings import Address, ClientSettings
from cordwood.spark.errors import RequestRefused

NEEDED = dict.fromkeys((CreateDelegationTokenRequest, DescribeDelegationTokenRequest), "2.4")
DEFAULT_LIFETIME = timedelta(milliseconds=-1)
USER = "User"
USED_PART = 0.5
"""A token is handed out for so much of its lifetime. The rest is for the tasks that have it."""
KNOWN_WITHIN_S, PAUSE_S = 10.0, 0.05


def for_executors(settings: ClientSettings) -> ClientSettings:
    """Return the settings that tasks connect with: with a delegation token in place of credentials, if they ask for it.

    A client that has a token itself passes it on: it may not create others. Raises RequestRefused, Unavailable.
    """
    sasl = settings.security.sasl
    if not settings.delegates or sasl is None or sasl.is_delegation_token:
        return settings
    known = _given.get(settings)
    if known is None or time.time() >= known[1]:
        known = _given[settings] = _obtain(settings, sasl)
    return known[0]


def without_credentials(settings: ClientSettings) -> ClientSettings:
    """Return the settings as executors may see them: without credentials, if each task gets a token."""
    return replace(settings, security=OPEN) if settings.delegates else settings


_given: dict[ClientSettings, tuple[ClientSettings, float]] = {}
"""The settings for tasks, and the time from which another token is used, by the driver's settings."""


def _obtain(settings: ClientSettings, sasl: SaslCredentials) -> tuple[ClientSettings, float]:
    """Find or create a token that all brokers know. Return the settings with it, and the end of its use."""
    cluster = ClusterReader(settings)
    backoff = Backoff("obtain a delegation token", settings.retry_timeout_ms)
    while True:
        try:
            token = _find_or_create(cluster.brokers(), settings, sasl)
            break
        except ConnectionFailed as failure:
            backoff.wait(failure)
    mechanism = sasl.mechanism if sasl.mechanism in HASHES else Mechanism.SCRAM_SHA_512
    credentials = SaslCredentials(mechanism, token.id, token.password, is_delegation_token=True)
    tls = settings.security.tls
    given = replace(settings, security=ClientSecurity(None if tls is None else tls.without_certificate(), credentials))
    for address in cluster.brokers():
        _wait_until_known(address, given)
    return given, token.used_until_s


class _Token(NamedTuple):
    id: str
    password: str
    used_until_s: float

    @classmethod
    def of(cls, token_id: str, hmac: bytes, issued_s: float, expires_s: float) -> "_Token":
        used_until_s = issued_s + USED_PART * (expires_s - issued_s)
        return cls(token_id, base64.b64encode(hmac).decode(), used_until_s)


def _find_or_create(brokers: Sequence[Address], settings: ClientSettings, sasl: SaslCredentials) -> _Token:
    """Return the user's newest token, or a new one if that has been used for most of its lifetime."""
    failures: list[str] = []
    for address in brokers:
        try:
            with closing(BrokerConnection(address, settings, NEEDED)) as connection:
                # Without a user name, which a bearer token hides, no token is known to be the user's own.
                return (sasl.username and _newest(connection, sasl.username)) or _new(connection)
        except ConnectionFailed as failure:
            failures.append(str(failure))
    raise ConnectionFailed("; ".join(failures) or "there are no brokers")


def _newest(connection: BrokerConnection, user: str) -> _Token | None:
    owner = DescribeDelegationTokenOwner(principal_type=USER, principal_name=user)
    answer = connection.ask(DescribeDelegationTokenRequest(owners=(owner,)))
    check_code(answer.error_code, "to describe delegation tokens")
    tokens = (
        _Token.of(each.token_id, each.hmac, each.issue_timestamp / 1000, each.expiry_timestamp / 1000)
        for each in answer.tokens
    )
    usable = (token for token in tokens if time.time() < token.used_until_s)
    return max(usable, key=lambda token: token.used_until_s, default=None)


def _new(connection: BrokerConnection) -> _Token:
    answer = connection.ask(CreateDelegationTokenRequest(renewers=(), max_lifetime=DEFAULT_LIFETIME))
    check_code(answer.error_code, "to create a delegation token")
    issued, expires = answer.issue_timestamp, answer.expiry_timestamp
    return _Token.of(answer.token_id, answer.hmac, issued.timestamp(), expires.timestamp())


def _wait_until_known(address: Address, settings: ClientSettings) -> None:
    """Wait until a broker accepts the token, which it gets with the metadata log. Raises RequestRefused."""
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while True:
        try:
            BrokerConnection(address, settings).close()
        except ConnectionFailed:
            # A broker that is down reads the metadata log before it accepts clients.
            return
        except RequestRefused:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)
        else:
            return
