"""The bearer tokens of a broker: none without an identity provider, and those of its keys with one."""

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest
from identity_provider import AUDIENCE, ISSUER, NOW_MS, key_set_text, token
from quorum_fixture import run_here

from cordwood.cluster.broker.bearer_tokens import BearerTokens
from cordwood.cluster.broker.environment import Environment
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.sources import ConfigMistakes, load
from cordwood.cluster.security.bearer import TokenRefused, unchecked_claims


def opened(**settings: Any) -> BearerTokens:
    missing = cast("Any", None)
    environment = Environment(
        disk=missing,
        wall_clock=lambda: NOW_MS,
        clock=lambda: 0.0,
        rng=random.Random(1),
        run_blocking=run_here,
        access=missing,
        hostname="localhost",
        descriptors_max=100,
        boot_id="",
        close=lambda: None,
    )
    return BearerTokens(Settings(**settings), environment)


def test_without_a_provider_every_token_is_refused() -> None:
    async def story() -> None:
        tokens = opened()
        await tokens.start()
        for text in (token(), "", "anything"):
            with pytest.raises(TokenRefused, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url is not set"):
                tokens.validate(text)
        await tokens.close()

    asyncio.run(story())


def test_with_a_provider_its_tokens_are_valid_and_others_are_not(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "keys.json"
        tokens = opened(
            sasl_oauthbearer_jwks_endpoint_url=path.as_uri(),
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=(AUDIENCE,),
            sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms=1,
        )
        await tokens.start()
        with pytest.raises(TokenRefused, match="no keys"):
            tokens.validate(token())
        path.write_bytes(key_set_text())
        async with asyncio.timeout(30):
            while True:
                try:
                    assert tokens.validate(token()).subject == "alice"
                    break
                except TokenRefused:
                    await asyncio.sleep(0.001)
        await tokens.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://id.example.org/keys", "Over http, the keys could be replaced"),
        ("ftp://id.example.org/keys", "write it as https://HOST/PATH"),
        ("id.example.org/keys", "write it as https://HOST/PATH"),
        ("https://", "write it as https://HOST/PATH"),
        ("https://[::1/keys", "is not an address"),
        ("https://user:password@id.example.org/keys", "a user or a password"),
        ("https://user@id.example.org/keys", "a user or a password"),
        ("file:keys.json", "file:///PATH"),
        ("file://elsewhere/keys.json", "file:///PATH"),
    ],
)
def test_a_wrong_address_of_the_keys_is_a_mistake(url: str, sentence: str) -> None:
    with pytest.raises(ConfigMistakes) as error:
        load(f"sasl.oauthbearer.jwks.endpoint.url = '{url}'")
    (said,) = error.value.sentences
    assert sentence in said
    assert "password@" not in said


def test_the_mechanism_without_keys_is_a_mistake() -> None:
    with pytest.raises(ConfigMistakes, match="is empty: set it to the address of the keys"):
        load("sasl.enabled.mechanisms = 'SCRAM-SHA-256,OAUTHBEARER'")
    load("sasl.enabled.mechanisms = 'OAUTHBEARER'\nsasl.oauthbearer.jwks.endpoint.url = 'https://id.example.org/keys'")


def test_claims_that_are_not_checked_are_named() -> None:
    assert len(list(unchecked_claims(Settings()))) == 2
    checked = Settings(sasl_oauthbearer_expected_issuer=ISSUER, sasl_oauthbearer_expected_audience=(AUDIENCE,))
    assert list(unchecked_claims(checked)) == []
