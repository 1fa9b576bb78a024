"""Frames that only brokers send, from clients: replication, range reads, and requests on behalf of others."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest
from handlers_fixture import HandlersStory, tell
from peer_fixture import FOLLOWER, HELLO

from cordwood.cluster.kafka.on_behalf import decode_on_behalf, encode_on_behalf, is_on_behalf
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.authorizer import CLUSTER_NAME, OpenAccess
from cordwood.cluster.security.principal import Identity, Principal
from cordwood.replication.frames import MalformedFrame, ReadRequest, encode_follow, encode_open, encode_read

ALICE = Identity(Principal("User", "alice"), "10.0.0.7", "SCRAM-SHA-256", is_token=True)
BOB = Identity(Principal("User", "bob"), "10.0.0.8")
BROKER = Identity(Principal("User", "broker"), "10.0.0.2", "SSL")
API_VERSIONS = bytes.fromhex("0012 0000 0000 0001 ffff")
CREATE_PARTITIONS = 37


class BrokersOnly(OpenAccess):
    """CLUSTER_ACTION for the broker alone. Everything else is open."""

    def __init__(self) -> None:
        self.asked: list[Identity] = []

    def may(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        self.asked.append(identity)
        is_action = (operation, resource, name) == (AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME)
        return not is_action or identity.principal == BROKER.principal


class Visitor:
    """A connection of an identity to a broker."""

    def __init__(self, broker: HandlersStory, identity: Identity) -> None:
        self.authorizer = broker.services.authorizer = BrokersOnly()
        self.frames: list[bytes] = []
        self.broker = broker
        self.channel = broker._here.open(
            "PLAINTEXT", broker._dispatcher.handle, lambda frame: self.frames.append(bytes(frame)), identity
        )

    def send(self, frame: bytes) -> None:
        self.channel.push([frame])

    async def is_open(self) -> bool:
        for _ in range(3):
            await asyncio.sleep(0)
        return self.channel.is_open

    @property
    def identity(self) -> Identity:
        return self.channel._connection.identity

    def is_follower(self) -> bool:
        return self.broker.follower_connections.epoch_of(FOLLOWER) is not None


FRAMES = [
    pytest.param(encode_open(HELLO), id="follower"),
    pytest.param(encode_read(HELLO, ReadRequest(UUID(int=1), 0, 0, 1000)), id="range read"),
    pytest.param(encode_on_behalf(BOB), id="on behalf"),
    pytest.param(encode_follow([]), id="without introduction"),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_client_is_not_taken_for_a_broker(frame: bytes) -> None:
    async def story(broker: HandlersStory) -> None:
        visitor = Visitor(broker, ALICE)
        visitor.send(frame)
        assert not await visitor.is_open()
        assert visitor.frames == []
        assert visitor.identity == ALICE

    tell(story)


def test_a_broker_follows() -> None:
    async def story(broker: HandlersStory) -> None:
        visitor = Visitor(broker, BROKER)
        visitor.send(encode_open(HELLO))
        visitor.send(encode_follow([]))
        assert await visitor.is_open()
        assert visitor.is_follower()

    tell(story)


def test_requests_have_the_rights_of_the_user_that_was_named_and_no_others() -> None:
    async def story(broker: HandlersStory) -> None:
        visitor = Visitor(broker, BROKER)
        visitor.send(encode_on_behalf(ALICE))
        assert await visitor.is_open()
        assert visitor.identity == ALICE
        visitor.send(encode_on_behalf(BOB))
        assert not await visitor.is_open()
        assert visitor.identity == ALICE
        assert visitor.authorizer.asked == [BROKER, ALICE]

    tell(story)


def test_a_follower_does_not_become_a_user() -> None:
    async def story(broker: HandlersStory) -> None:
        visitor = Visitor(broker, BROKER)
        visitor.send(encode_open(HELLO))
        visitor.send(encode_on_behalf(ALICE))
        assert not await visitor.is_open()
        assert visitor.identity == BROKER

    tell(story)


@pytest.mark.parametrize("identity", [ALICE, BOB, Identity(Principal("User", "ünïcode, with: all"))])
def test_an_identity_arrives_as_it_is(identity: Identity) -> None:
    frame = memoryview(encode_on_behalf(identity))[4:]
    assert is_on_behalf(frame)
    assert decode_on_behalf(frame) == identity


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda frame: frame[:-1], id="cut"),
        pytest.param(lambda frame: frame + b"\x00", id="longer"),
        pytest.param(lambda frame: frame[:2] + b"\x00\x01" + frame[4:], id="another version"),
        pytest.param(lambda frame: frame[:4] + b"\x95\xa0\xa0\xa0\xa0\xc2", id="an empty principal"),
        pytest.param(lambda frame: frame[:4] + b"\x95\xa4User\xa1a\xa0\xa0\x01", id="another type"),
        pytest.param(lambda frame: frame[:4], id="nothing"),
    ],
)
def test_a_malformed_introduction(change: Callable[[bytes], bytes]) -> None:
    frame = memoryview(change(encode_on_behalf(ALICE)[4:]))
    assert is_on_behalf(frame)
    with pytest.raises(MalformedFrame):
        decode_on_behalf(frame)
