"""SASL OAUTHBEARER: one message with a token, and two rounds for a refusal."""

import pytest

from cordwood.cluster.security.bearer import BearerToken, TokenRefused
from cordwood.cluster.security.principal import Principal
from cordwood.cluster.security.sasl.exchange import Authenticated, AuthenticationFailed
from cordwood.cluster.security.sasl.oauthbearer import REFUSAL, OAuthBearerExchange

EXPIRY_MS = 5000
ALICE = Authenticated(Principal("User", "alice"), expires_at_ms=EXPIRY_MS)


def begun() -> OAuthBearerExchange:
    def validate(token: str) -> BearerToken:
        if token != "ey.right.one":
            raise TokenRefused("the token has expired")
        return BearerToken("alice", EXPIRY_MS)

    return OAuthBearerExchange(validate)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer ey.right.one\x01\x01",
        b"n,,\x01auth=bearer   ey.right.one\x01\x01",
        b"n,a=alice,\x01auth=Bearer ey.right.one\x01\x01",
        b"n,,\x01auth=Bearer ey.right.one\x01traceId=123\x01logicalCluster=x=y\x01\x01",
        b"n,,\x01traceId=123\x01auth=Bearer ey.right.one\x01\x01",
    ],
)
def test_a_right_token_lets_its_user_in(message: bytes) -> None:
    exchange = begun()
    assert exchange.step(message) == b""
    assert exchange.outcome == ALICE


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer ey.right.one\x01",
        b"n,,\x01auth=Bearer ey.right.one",
        b"n,,\x01auth=Bearer ey.right.one\x01\x01\x01",
        b"n,,\x01auth=Bearer ey.right.one\x01\x01more",
        b"y,,\x01auth=Bearer ey.right.one\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer ey.right.one\x01\x01",
        b"n,,\x01auth=Basic ey.right.one\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer ey right one\x01\x01",
        b"n,,\x01Auth=Bearer ey.right.one\x01\x01",
        b"n,,\x01auth=Bearer ey.right.one\x01auth=Bearer ey.other.one\x01\x01",
        b"n,,\x01auth=Bearer ey.right.one\x01bad-name=1\x01\x01",
        b"n,,\x01auth=Bearer ey.right.one\x00\x01\x01",
        b"n,a=,\x01auth=Bearer ey.right.one\x01\x01",
        b"n,a=x=y,\x01auth=Bearer ey.right.one\x01\x01",
        b"\xff\xfe",
        b"\x00alice\x00password",
        b"n,,n=alice,r=nonce",
        b"n,,\x01" + b"a=b\x01" * 10_000,
    ],
)
def test_another_message_fails_at_once(message: bytes) -> None:
    exchange = begun()
    with pytest.raises(AuthenticationFailed, match="Invalid OAUTHBEARER"):
        exchange.step(message)
    assert exchange.outcome is None


@pytest.mark.parametrize("second", [b"\x01", b"", b"n,,\x01auth=Bearer ey.right.one\x01\x01"])
def test_a_refusal_takes_two_rounds_and_ends_the_exchange(second: bytes) -> None:
    exchange = begun()
    assert exchange.step(b"n,,\x01auth=Bearer ey.wrong.one\x01\x01") == REFUSAL
    assert exchange.outcome is None
    for message in (second, b"n,,\x01auth=Bearer ey.right.one\x01\x01"):
        with pytest.raises(AuthenticationFailed, match="the token has expired"):
            exchange.step(message)
    assert exchange.outcome is None


@pytest.mark.parametrize("authzid", [b"admin", b"alic", b"ALICE", b"alice=2C", b"=3Dalice"])
def test_a_token_is_not_for_another_user(authzid: bytes) -> None:
    exchange = begun()
    with pytest.raises(AuthenticationFailed, match="authorization id") as failed:
        exchange.step(b"n,a=" + authzid + b",\x01auth=Bearer ey.right.one\x01\x01")
    assert exchange.outcome is None
    assert failed.value.claimed == "alice"


def test_no_token_is_quoted() -> None:
    exchange = begun()
    exchange.step(b"n,,\x01auth=Bearer ey.wrong.one\x01\x01")
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.step(b"\x01")
    assert "ey.wrong" not in failed.value.message + failed.value.detail + repr(exchange)
