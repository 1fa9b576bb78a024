"""The quorum handshake: version, cluster id, role and a shared secret, checked before any other message.

The dialling side sends a hello; the other side answers with its own hello and a proof; the dialling side sends its
proof, and gets a welcome. A proof is an HMAC over both hellos. Each hello has a random nonce, so that a proof cannot be
replayed. The proof authenticates the peers; the messages after it are neither encrypted nor signed.

The end of the nonce has the levels of metadata.version that the sender supports: a broker of release 0.1 accepts any
nonce, and would refuse a hello with another field. Its own nonces do not have the mark.
"""

import hashlib
import hmac
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.features import FIRST_LEVEL, OF_FIRST_RELEASE, SUPPORTED, Levels
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.packed import pack, unpack
from cordwood.cluster.metadata.quorum import QuorumOptions
from cordwood.cluster.metadata.raft.messages import MalformedMessage

MAGIC = "cordwood-quorum"
VERSION = 2
FRAME_BYTES_MAX = 1024
"""The largest frame of a handshake, whose sender is not authenticated yet."""
NONCE_BYTES = 16
_LEVELS_MARK = b"mvls"
_LEVELS_AT = NONCE_BYTES - 2
ANY = BrokerId(-1)
"""The expected broker where its id is not known: at an address of controller.quorum.bootstrap.servers."""


class PeerRole(IntEnum):
    VOTER = 1
    OBSERVER = 2
    MEMBER = 3
    """Keeps the log as a voter does. Whether it is one is in the log, and it may lack the newest entries."""


class _Kind(IntEnum):
    HELLO = 1
    PROOF = 2
    WELCOME = 3
    REFUSAL = 4


@dataclass(frozen=True, slots=True)
class Peer:
    """The broker at the other end."""

    broker_id: BrokerId
    role: PeerRole
    levels: Levels = OF_FIRST_RELEASE

    @property
    def keeps_log(self) -> bool:
        """True for a voter and for a learner: one may become the other while the connection lasts."""
        return self.role is not PeerRole.OBSERVER


@dataclass(frozen=True, slots=True)
class Membership:
    """This broker's identity, and the voters in its metadata. An unknown cluster id is empty."""

    broker_id: BrokerId
    role: PeerRole
    cluster_id: str
    voters: Collection[BrokerId]
    secret: bytes
    level: int = FIRST_LEVEL
    """The finalized metadata.version in this broker's metadata."""
    are_configured: bool = True
    """Whether the voters are those of controller.quorum.voters. Otherwise they are in the metadata log, and change."""

    @classmethod
    def of(
        cls, options: QuorumOptions, role: PeerRole, image: Image, voters: Collection[BrokerId], *, are_configured: bool
    ) -> "Membership":
        """Return the membership of a broker that has this image."""
        secret, cluster_id = options.secret.encode(), image.cluster_id or options.cluster_id
        level = image.metadata_version
        return cls(options.node_id, role, cluster_id, voters, secret, level, are_configured)


class HandshakeRefused(Exception):
    """This broker refuses the peer. The message is for the logs of both sides."""


class RefusedByPeer(Exception):
    """The peer refuses this broker, for this reason."""


class Handshake:
    """One side of a handshake. `expected` is the dialled broker or ANY, None on the dialled side; `nonce` is random."""

    def __init__(self, me: Membership, expected: BrokerId | None, nonce: bytes, send: Callable[[bytes], None]) -> None:
        self._me, self._expected, self._send = me, None if expected == ANY else expected, send
        self._is_dialler = expected is not None
        self._hello = pack(
            [
                _Kind.HELLO,
                MAGIC,
                VERSION,
                me.broker_id,
                me.role,
                me.cluster_id,
                ANY if expected is None else expected,
                nonce,
            ]
        )
        self._their_hello = b""
        self._peer: Peer | None = None
        self._is_proven = False

    def begin(self) -> None:
        if self._is_dialler:
            self._send(self._hello)

    def receive(self, frame: bytes) -> Peer | None:
        """Take a frame. Return the peer once it is authenticated.

        Raises HandshakeRefused, RefusedByPeer, MalformedMessage.
        """
        kind, fields = _opened(frame)
        match kind:
            case _Kind.REFUSAL if len(fields) == 1 and isinstance(fields[0], str):
                raise RefusedByPeer(fields[0][:300])
            case _Kind.HELLO if self._peer is None:
                self._their_hello = frame
                self._peer = self._judged(fields)
                if not self._is_dialler:
                    self._send(self._hello)
                    self._send_proof()
                return None
            case _Kind.PROOF if self._peer is not None and not self._is_proven and len(fields) == 1:
                self._check_proof(self._peer, fields[0])
                self._is_proven = True
                if self._is_dialler:
                    self._send_proof()
                    return None
                self._send(pack([_Kind.WELCOME]))
                return self._peer
            case _Kind.WELCOME if self._is_dialler and self._is_proven:
                return self._peer
            case _:
                raise MalformedMessage("a handshake out of order")

    def _judged(self, fields: list[Any]) -> Peer:
        magic, version, broker_id, role, cluster_id, wanted, nonce = _checked_hello(fields)
        me = self._me
        if magic != MAGIC or version != VERSION:
            raise HandshakeRefused(
                f"it uses version {version} of the quorum's protocol, but broker {me.broker_id} uses {VERSION}:"
                " upgrade the older broker"
            )
        if wanted not in (-1, me.broker_id) or self._expected not in (None, broker_id):
            raise HandshakeRefused(
                f"controller.quorum.voters has broker {wanted if wanted >= 0 else self._expected} where broker"
                f" {me.broker_id if wanted >= 0 else broker_id} answers"
            )
        if broker_id == me.broker_id:
            raise HandshakeRefused(f"two brokers have the node.id {broker_id}: give each broker a unique node.id")
        if not self._has_place(broker_id, role, cluster_id):
            is_or_not = "is" if broker_id in me.voters else "is not"
            raise HandshakeRefused(
                f"broker {broker_id} {is_or_not} one of the controller.quorum.voters of broker {me.broker_id}"
            )
        if cluster_id and me.cluster_id and cluster_id != me.cluster_id:
            raise HandshakeRefused(
                f"broker {broker_id} belongs to cluster {cluster_id}, and broker {me.broker_id}, the other end of"
                f" the connection, to cluster {me.cluster_id}"
            )
        levels = _levels_in(nonce)
        if why_not := levels.why_not(broker_id, me.level):
            raise HandshakeRefused(why_not)
        try:
            return Peer(BrokerId(broker_id), PeerRole(role), levels)
        except ValueError:
            raise MalformedMessage(f"role {role}") from None

    def _has_place(self, broker_id: int, role: int, cluster_id: str) -> bool:
        """Return whether the voters in this broker's metadata allow a peer in this role.

        The voters of a formed cluster change, and either side may lag: each may have to get the change from the other.
        """
        me, is_voter = self._me, broker_id in self._me.voters
        match role:
            case PeerRole.VOTER:
                return is_voter or not me.are_configured or bool(cluster_id and not me.cluster_id)
            case PeerRole.MEMBER:
                return not is_voter or bool(cluster_id or me.cluster_id)
            case _:
                return not is_voter

    def _send_proof(self) -> None:
        self._send(pack([_Kind.PROOF, self._proof(self._is_dialler)]))

    def _proof(self, of_dialler: bool) -> bytes:
        if not self._me.secret:
            return b""
        first, second = self._hello, self._their_hello
        if not self._is_dialler:
            first, second = second, first
        label = b"dialler" if of_dialler else b"dialled"
        return hmac.digest(self._me.secret, label + hashlib.sha256(first).digest() + second, hashlib.sha256)

    def _check_proof(self, peer: Peer, proof: object) -> None:
        if not isinstance(proof, bytes):
            raise MalformedMessage("a malformed proof")
        if self._me.secret and not hmac.compare_digest(proof, self._proof(not self._is_dialler)):
            raise HandshakeRefused(
                f"brokers {self._me.broker_id} and {peer.broker_id} have different values of"
                " controller.quorum.secret: set the same one on all brokers"
            )


def new_nonce(rng: random.Random, levels: Levels = SUPPORTED) -> bytes:
    """Return a nonce that names the supported levels."""
    return rng.randbytes(_LEVELS_AT - len(_LEVELS_MARK)) + _LEVELS_MARK + bytes(levels)


def _levels_in(nonce: bytes) -> Levels:
    """Return the levels of a hello's sender."""
    if not nonce[:_LEVELS_AT].endswith(_LEVELS_MARK):
        return OF_FIRST_RELEASE
    return Levels(*nonce[_LEVELS_AT:])


def refusal(reason: str) -> bytes:
    """Return the frame that sends the peer the reason of its refusal."""
    return pack([_Kind.REFUSAL, reason])


def _opened(frame: bytes) -> tuple[int, list[Any]]:
    try:
        kind, *fields = unpack(frame)
    except (ValueError, TypeError) as error:
        raise MalformedMessage(f"a malformed handshake: {error}") from None
    return kind, fields


def _checked_hello(fields: list[Any]) -> list[Any]:
    if list(map(type, fields)) != [str, int, int, int, str, int, bytes] or len(fields[-1]) != NONCE_BYTES:
        raise MalformedMessage("a malformed hello")
    return fields
