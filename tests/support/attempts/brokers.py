"""Frames that only brokers send, and the metadata quorum: by users, strangers and members of other clusters."""

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from ssl import SSLError
from typing import Any
from uuid import UUID

from closed_cluster import ADMIN, SECRETS
from secure_cluster import BROKERS

from attempts.attempt import CLOSED, Attempt, Audited, Port, Stranger, closed_after, not_of_the_quorum, unproved
from cordwood.cluster.kafka.on_behalf import encode_on_behalf
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.packed import pack, unpack
from cordwood.cluster.metadata.raft.handshake import MAGIC, VERSION, Handshake, Membership, PeerRole, new_nonce
from cordwood.cluster.security.audited_authorizer import DENIED
from cordwood.cluster.security.principal import Identity, Principal
from cordwood.replication.frames import Open, ReadRequest, encode_open, encode_read

POSED = Open(2, UUID(int=7), 1, "")
FRAMES: dict[str, bytes] = {
    "replication by a follower": encode_open(POSED),
    "a read of a range by a follower": encode_read(POSED, ReadRequest(UUID(int=1), 0, 0, 1000)),
    "requests on behalf of the administrator": encode_on_behalf(Identity(Principal("User", ADMIN), "127.0.0.1", "SSL")),
    "requests on behalf of the brokers": encode_on_behalf(Identity(Principal("User", "broker"), "127.0.0.1", "SSL")),
}
OBSERVER = BrokerId(7)
_LENGTH = struct.Struct("<I")


def _before_authentication(frame: bytes, port: Port, stranger: Stranger) -> str:
    tls = stranger.cluster.trusting if port is Port.KAFKA else None
    return closed_after(stranger.send(port, frame, tls))


def _by_user(frame: bytes, stranger: Stranger) -> str:
    with stranger.as_user("eve") as client:
        return closed_after(client.rest_after(frame))


def _by_certificate(name: str, frame: bytes, stranger: Stranger) -> str:
    return closed_after(stranger.send(Port.REPLICATION, frame, stranger.cluster.context(name)))


def _membership(cluster_id: str = "", secret: str = SECRETS["quorum"], **changes: Any) -> Membership:
    usual = {"broker_id": OBSERVER, "role": PeerRole.OBSERVER, "voters": BROKERS}
    return Membership(cluster_id=cluster_id, secret=secret.encode(), **{**usual, **changes})


class QuorumClient:
    """A connection to the quorum with the certificate of a broker, or of another name."""

    def __init__(self, stranger: Stranger, name: str = "broker") -> None:
        self._socket = stranger.connected(Port.QUORUM, broker_context(stranger, name))
        self._received = b""

    def send(self, frame: bytes) -> None:
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def frame(self) -> bytes:
        """Return the next frame. Raises ConnectionError."""
        size = _LENGTH.unpack(self._read(_LENGTH.size))[0]
        return self._read(size)

    def _read(self, count: int) -> bytes:
        while len(self._received) < count:
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the broker has closed the connection")
            self._received += piece
        content, self._received = self._received[:count], self._received[count:]
        return content

    def refusal(self) -> str:
        """Return the reason of a refusal, or CLOSED without one."""
        with suppress(ConnectionError, SSLError):
            while True:
                kind, *fields = unpack(self.frame())
                if kind == _REFUSAL:
                    return "REFUSED"
                if kind == _WELCOME:
                    return f"WELCOME {fields}"
        return CLOSED

    def __enter__(self) -> "QuorumClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


_HELLO, _PROOF, _WELCOME, _REFUSAL = 1, 2, 3, 4
NONCE = new_nonce(random.Random(1))


def broker_context(stranger: Stranger, name: str) -> Any:
    """Return the TLS context with the certificate of the brokers, whose key is encrypted, or of another name."""
    if name != "broker":
        return stranger.cluster.context(name)
    return stranger.cluster.context_of_brokers()


def _hello(me: Membership, nonce: bytes = NONCE) -> bytes:
    sent: list[bytes] = []
    Handshake(me, BrokerId(1), nonce, sent.append).begin()
    return sent[0]


def _introduced(me: Membership, stranger: Stranger) -> str:
    with QuorumClient(stranger) as client:
        client.send(_hello(me))
        return client.refusal()


def _raw(frame: bytes, stranger: Stranger) -> str:
    with QuorumClient(stranger) as client:
        client.send(frame)
        return client.refusal()


def _of_another_cluster(stranger: Stranger) -> str:
    return _introduced(_membership("AAAAAAAAAAAAAAAAAAAAAA"), stranger)


def _proved(make: Callable[[bytes, bytes], bytes], stranger: Stranger, name: str = "broker") -> str:
    """Say hello, and send a proof that is made of the broker's hello and its proof."""
    with QuorumClient(stranger, name) as client:
        client.send(_hello(_membership()))
        theirs, proof = client.frame(), client.frame()
        client.send(pack([_PROOF, make(theirs, unpack(proof)[1])]))
        return client.refusal()


def _proof(secret: str, theirs: bytes) -> bytes:
    """Return the proof of the dialling side, with a secret."""
    me = _membership(secret=secret)
    own = Handshake(me, BrokerId(1), NONCE, lambda _: None)
    own._their_hello = theirs
    return own._proof(of_dialler=True)


def _replayed(stranger: Stranger) -> str:
    """Send a proof of the right secret that belongs to an earlier connection."""
    with QuorumClient(stranger) as earlier:
        earlier.send(_hello(_membership()))
        proof = _proof(SECRETS["quorum"], earlier.frame())
    return _proved(lambda _theirs, _proof: proof, stranger)


def _attempts() -> Iterator[Attempt]:
    for name, frame in FRAMES.items():
        yield Attempt(
            f"{name}, before authentication",
            Port.KAFKA,
            partial(_before_authentication, frame, Port.KAFKA),
            CLOSED,
            unproved("while the authentication is new"),
        )
        yield Attempt(
            f"{name}, before authentication and without TLS",
            Port.KAFKA_UNENCRYPTED,
            partial(_before_authentication, frame, Port.KAFKA_UNENCRYPTED),
            CLOSED,
            unproved("while the authentication is new"),
        )
        denied = partial(Audited, "CLUSTER_ACTION", DENIED)
        yield Attempt(f"{name}, by a user", Port.KAFKA, partial(_by_user, frame), CLOSED, denied("User:eve"))
        yield Attempt(
            f"{name}, by a user with a certificate",
            Port.REPLICATION,
            partial(_by_certificate, "alice", frame),
            CLOSED,
            denied("User:alice"),
        )
    quorum = partial(Attempt, port=Port.QUORUM)
    admin = not_of_the_quorum("")
    yield quorum("QUORUM: a broker of another cluster", send=_of_another_cluster, refusal="REFUSED",
                 audited=not_of_the_quorum("belongs to cluster"))  # fmt: skip
    for name, me, detail in (
        ("a voter that is none", _membership(role=PeerRole.VOTER), "is not one of the controller.quorum.voters"),
        ("an observer with a voter's id", _membership(broker_id=BrokerId(2)), "is one of the controller.quorum.voters"),
        ("the broker's own id", _membership(broker_id=BrokerId(1), role=PeerRole.VOTER), "two brokers have"),
    ):
        yield quorum(f"QUORUM: {name}", send=partial(_introduced, me), refusal="REFUSED",
                     audited=not_of_the_quorum(detail))  # fmt: skip
    secret = not_of_the_quorum("different values of controller.quorum.secret")
    for name, make in {
        "a wrong secret": lambda theirs, _: _proof("guess", theirs),
        "no secret": lambda _, __: b"",
        "the broker's own proof, reflected": lambda _, proof: proof,
    }.items():
        for who in ("broker", "alice"):
            send = partial(_proved, make, name=who)
            words = f"QUORUM: {name}, with the certificate of {who}"
            yield quorum(words, send=send, refusal="REFUSED", audited=secret)
    yield quorum("QUORUM: a replayed proof", send=_replayed, refusal="REFUSED", audited=secret)
    version = pack([_HELLO, MAGIC, VERSION + 1, OBSERVER, PeerRole.OBSERVER, "", 1, NONCE])
    yield quorum("QUORUM: another version", send=partial(_raw, version), refusal="REFUSED",
                 audited=not_of_the_quorum("version"))  # fmt: skip
    for name, frame in {
        "a proof without a hello": pack([_PROOF, b""]),
        "a welcome without a proof": pack([_WELCOME]),
        "a hello of wrong types": pack([_HELLO, 1, 2, 3]),
        "no message": b"\xff\xff",
        "a frame that is too large": bytes(5000),
    }.items():
        yield quorum(f"QUORUM: {name}", send=partial(_raw, frame), refusal=CLOSED, audited=admin)


BROKERS_FRAMES = tuple(_attempts())
