"""Key sets: which keys are usable, and how often the set is read, whatever clients send."""

import json
import math
import random
from typing import Any

import pytest
from identity_provider import curve_key, key_set, key_set_text, rsa_key
from joserfc.jwk import OctKey

from cordwood.cluster.security.bearer import TokenRefused
from cordwood.cluster.security.jwks import JWKS_BYTES_MAX, KeyCache, Keys, RefreshTimes, UnusableKeys, parse
from cordwood.cluster.security.jwt import UnknownKey

REFRESH_S, BACKOFF_S, BACKOFF_MAX_S = 3600.0, 0.1, 10.0


def with_keys(*keys: Any) -> Keys:
    return parse(json.dumps({"keys": keys}).encode())


def one(**changes: Any) -> dict[str, Any]:
    key: dict[str, Any] = key_set()["keys"][0]
    return {name: value for name, value in {**key, **changes}.items() if value is not None}


def test_keys_of_every_listed_type_are_usable() -> None:
    keys = parse(key_set_text(rsa_key(), curve_key("P-256", "a"), curve_key("Ed25519", "b")))
    assert keys.count == 3
    assert keys.ignored == ()
    assert keys.find("a", "ES256").kid == "a"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kty": "oct", "k": "c2VjcmV0"}, "not RSA, EC or OKP"),
        ({"kty": "AKP"}, "not RSA, EC or OKP"),
        ({"kty": None}, "not RSA, EC or OKP"),
        ({"kty": ["RSA"]}, "not RSA, EC or OKP"),
        ({"use": "enc"}, "not for signatures"),
        ({"key_ops": ["encrypt"]}, "not for signatures"),
        ({"key_ops": 7}, "not for signatures"),
        ({"alg": "HS256"}, "algorithm"),
        ({"alg": "none"}, "algorithm"),
        ({"alg": ["RS256"]}, "algorithm"),
        ({"d": "AQAB"}, "not a public key"),
        ({"kid": 7}, "id is not a text"),
        ({"n": "AQAB"}, "invalid"),
        ({"n": None}, "invalid"),
        ({"n": "!"}, "invalid"),
        ({"e": "Ag"}, "invalid"),
        ({"kty": "EC"}, "invalid"),
    ],
)
def test_other_keys_are_ignored_with_a_reason_and_the_rest_is_used(changes: dict[str, Any], reason: str) -> None:
    keys = with_keys(one(**changes), one(kid="good"))
    assert keys.count == 1
    assert reason in keys.ignored[0]
    assert keys.find("good", "RS256").kid == "good"


def test_short_rsa_keys_and_unknown_curves_are_ignored() -> None:
    keys = with_keys(rsa_key("short", 1024).as_dict(private=False), curve_key("Ed448").as_dict(private=False), "text")
    assert keys.count == 0
    assert len(keys.ignored) == 3


def test_a_shared_secret_never_verifies() -> None:
    keys = parse(json.dumps({"keys": [OctKey.generate_key(256, {"kid": "first"}).as_dict(private=True)]}).encode())
    with pytest.raises(UnknownKey):
        keys.find("first", "HS256")


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES256"])
def test_a_key_is_for_the_algorithms_of_its_type(algorithm: str) -> None:
    with pytest.raises(UnknownKey):
        with_keys(one()).find("first", algorithm)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b"[" * 100_000, b"<html>", b'{"keys": [' + b"1," * 100 + b"1]}"],
)
def test_what_is_no_key_set_is_unusable(text: bytes) -> None:
    with pytest.raises(UnusableKeys):
        parse(text)


def test_a_set_that_is_too_large_is_unusable() -> None:
    with pytest.raises(UnusableKeys, match="larger"):
        parse(b" " * (JWKS_BYTES_MAX + 1))


class Provider:
    """A key cache, and the times at which it wants to be read."""

    def __init__(self) -> None:
        self.cache = KeyCache(RefreshTimes(REFRESH_S, BACKOFF_S, BACKOFF_MAX_S), random.Random(1))
        self.calls = 0
        self.cache.came_forward = self._came

    def _came(self) -> None:
        self.calls += 1

    def refuses(self, key_id: str) -> bool:
        try:
            self.cache.find(key_id, "RS256")
        except TokenRefused:
            return True
        return False


def test_before_the_first_set_every_token_is_refused() -> None:
    provider = Provider()
    assert provider.cache.next_s == -math.inf
    with pytest.raises(TokenRefused, match="no keys"):
        provider.cache.find("first", "RS256")
    provider.cache.failed(0)
    with pytest.raises(TokenRefused, match="no keys"):
        provider.cache.find(None, "RS256")


def test_a_new_set_replaces_the_one_before() -> None:
    provider = Provider()
    provider.cache.read(parse(key_set_text(rsa_key())), 0)
    assert provider.cache.next_s == REFRESH_S
    assert not provider.refuses("first")
    provider.cache.read(parse(key_set_text(rsa_key("second"))), REFRESH_S)
    assert provider.refuses("first"), "a key that was withdrawn is not accepted"
    provider.cache.read(parse(b'{"keys": []}'), 2 * REFRESH_S)
    assert provider.refuses("second")


def test_a_failure_keeps_the_keys_and_is_repeated_with_growing_pauses() -> None:
    provider = Provider()
    provider.cache.read(parse(key_set_text(rsa_key())), 0)
    now_s, pauses = REFRESH_S, []
    for _ in range(40):
        provider.cache.failed(now_s)
        pauses.append(provider.cache.next_s - now_s)
        now_s = provider.cache.next_s
    assert not provider.refuses("first")
    assert pauses[0] <= BACKOFF_S
    assert 0.8 * BACKOFF_MAX_S <= min(pauses[10:]) <= max(pauses) <= BACKOFF_MAX_S


def test_unknown_keys_make_one_reading_come_soon_and_never_a_flood() -> None:
    provider = Provider()
    provider.cache.read(parse(key_set_text(rsa_key())), 100)
    for number in range(10_000):
        assert provider.refuses(f"made-up-{number}")
    assert provider.cache.next_s == 100 + BACKOFF_MAX_S
    assert provider.calls == 1
    provider.cache.failed(111)
    assert provider.refuses("another")
    assert 111 < provider.cache.next_s <= 111 + BACKOFF_MAX_S
    readings, now_s = 0, 111.0
    while now_s < 1111:
        now_s = provider.cache.next_s
        provider.cache.read(parse(key_set_text(rsa_key())), now_s)
        readings += 1
        assert provider.refuses(f"made-up-{now_s}")
    assert readings <= 1000 / BACKOFF_MAX_S + 1
