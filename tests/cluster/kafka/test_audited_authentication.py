"""Audit events of connections that end before they are authenticated."""

import struct

import pytest
from sasl_fixture import SaslFixture, tell

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authenticator import FRAME_BYTES_MAX


def head(api: int, version: int = 0) -> bytes:
    return struct.pack(">hhih", api, version, 1, -1)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (head(ApiKey.METADATA), "a request to API 3 while the authentication is new"),
        (head(ApiKey.API_VERSIONS, 3) + b"\0" + b"\xff" * 20, "a malformed request"),
        (head(ApiKey.SASL_HANDSHAKE) + b"\x7f\xff", "a malformed request"),
        (head(ApiKey.SASL_HANDSHAKE) + bytes(FRAME_BYTES_MAX), "the limit"),
    ],
    ids=["order", "malformed version request", "malformed handshake", "length"],
)
def test_whatever_ends_an_authentication_is_audited_once(sent: bytes, reason: str) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        client.push(sent)
        await client.end()
        (event,) = broker.audited
        assert event.is_refusal
        assert reason in event.detail

    tell(story)


def test_a_mechanism_that_is_not_offered_is_audited() -> None:
    async def story(broker: SaslFixture) -> None:
        await broker.stranger().shake("GSSAPI")
        (event,) = broker.audited
        assert (event.identity.mechanism, event.is_refusal) == ("GSSAPI", True)

    tell(story)


def test_the_end_of_an_authenticated_connection_is_no_refusal() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("SCRIPTED")
        await client.send(b"alice")
        assert broker.audited == []
        client.connection.close("a reason after the authentication")
        assert broker.audited == []

    tell(story)
