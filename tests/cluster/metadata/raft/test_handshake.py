"""The quorum's handshake: it admits voters and observers of one cluster with its secret, and refuses others."""

import random
from dataclasses import replace

import pytest

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.features import Levels
from cordwood.cluster.metadata.raft.handshake import (
    NONCE_BYTES,
    Handshake,
    HandshakeRefused,
    Membership,
    Peer,
    PeerRole,
    RefusedByPeer,
    new_nonce,
    refusal,
)
from cordwood.cluster.metadata.raft.messages import MalformedMessage

ONE, TWO, SEVEN = BrokerId(1), BrokerId(2), BrokerId(7)
VOTER = Membership(TWO, PeerRole.VOTER, "ours", (ONE, TWO), b"secret")
DIALLED = replace(VOTER, broker_id=ONE)


class Meeting:
    """A handshake between two brokers, frame by frame."""

    def __init__(
        self,
        dialler: Membership,
        dialled: Membership,
        expected: BrokerId = ONE,
        nonce: bytes = b"d" * NONCE_BYTES,
    ) -> None:
        self.frames: list[tuple[str, bytes]] = []
        self.dialler = Handshake(dialler, expected, nonce, lambda frame: self.send("dialled", frame))
        self.dialled = Handshake(dialled, None, b"l" * NONCE_BYTES, lambda frame: self.send("dialler", frame))
        self.seen: list[tuple[str, bytes]] = []
        self.peers: dict[str, Peer] = {}

    def send(self, receiver: str, frame: bytes) -> None:
        self.frames.append((receiver, frame))

    def take_place(self) -> dict[str, Peer]:
        """Run the handshake and return the peer that each side accepted."""
        self.dialler.begin()
        while self.frames:
            receiver, frame = self.frames.pop(0)
            self.seen.append((receiver, frame))
            peer = getattr(self, receiver).receive(frame)
            if peer is not None:
                self.peers[receiver] = peer
        return self.peers


def test_two_voters_of_a_cluster_meet() -> None:
    assert Meeting(VOTER, DIALLED).take_place() == {
        "dialled": Peer(TWO, PeerRole.VOTER),
        "dialler": Peer(ONE, PeerRole.VOTER),
    }


def test_an_observer_meets_a_voter() -> None:
    observer = replace(VOTER, broker_id=SEVEN, role=PeerRole.OBSERVER)
    assert Meeting(observer, DIALLED).take_place()["dialled"] == Peer(SEVEN, PeerRole.OBSERVER)


@pytest.mark.parametrize(("one", "other"), [("ours", ""), ("", "ours"), ("", "")])
def test_a_cluster_that_is_not_known_yet_fits_any(one: str, other: str) -> None:
    assert len(Meeting(replace(VOTER, cluster_id=one), replace(DIALLED, cluster_id=other)).take_place()) == 2


@pytest.mark.parametrize(
    ("dialler", "reason"),
    [
        (replace(VOTER, cluster_id="theirs"), "broker 2 belongs to cluster theirs.* to cluster ours"),
        (
            replace(VOTER, secret=b"guess"),
            "brokers 2 and 1 have different values of controller.quorum.secret: set the same one on all brokers",
        ),
        (
            replace(VOTER, secret=b""),
            "brokers 1 and 2 have different values of controller.quorum.secret: set the same one on all brokers",
        ),
        (replace(VOTER, broker_id=SEVEN), "broker 7 is not one of the controller.quorum.voters of broker 1"),
        (replace(VOTER, role=PeerRole.OBSERVER), "broker 2 is one of the controller.quorum.voters"),
        (replace(VOTER, broker_id=ONE), "two brokers have the node.id 1"),
    ],
)
def test_who_does_not_belong_is_refused_with_a_reason(dialler: Membership, reason: str) -> None:
    with pytest.raises(HandshakeRefused, match=reason):
        Meeting(dialler, DIALLED).take_place()


@pytest.mark.parametrize(("levels", "level"), [(Levels(1, 2), 1), (Levels(1, 2), 2), (Levels(2, 7), 5)])
def test_a_broker_that_supports_the_level_is_known_with_its_levels(levels: Levels, level: int) -> None:
    # Only the levels of the dialling side are judged here: the other's nonce is one of release 0.1.
    meeting = Meeting(VOTER, replace(DIALLED, level=level), nonce=new_nonce(random.Random(1), levels))
    assert meeting.take_place()["dialled"] == Peer(TWO, PeerRole.VOTER, levels)


@pytest.mark.parametrize(("levels", "level"), [(Levels(1, 1), 2), (Levels(1, 2), 3), (Levels(2, 7), 1)])
def test_a_broker_of_other_levels_is_refused_with_them(levels: Levels, level: int) -> None:
    meeting = Meeting(VOTER, replace(DIALLED, level=level), nonce=new_nonce(random.Random(1), levels))
    with pytest.raises(HandshakeRefused, match=f"broker 2 supports metadata.version {levels}, .* finalized {level}: "):
        meeting.take_place()


def test_a_nonce_of_release_0_1_supports_the_first_level() -> None:
    assert Meeting(VOTER, DIALLED).take_place()["dialled"].levels == (1, 1)
    with pytest.raises(HandshakeRefused, match=r"supports metadata.version 1, and the cluster has finalized 2"):
        Meeting(VOTER, replace(DIALLED, level=2)).take_place()


def test_two_nonces_differ() -> None:
    rng = random.Random(1)
    nonces = {new_nonce(rng) for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}


def test_a_wrong_address_is_noticed() -> None:
    with pytest.raises(HandshakeRefused, match=r"has broker 3 where broker 1 answers"):
        Meeting(VOTER, DIALLED, expected=BrokerId(3)).take_place()


def test_a_proof_does_not_serve_twice() -> None:
    meeting = Meeting(VOTER, DIALLED)
    meeting.take_place()
    hello, proof = (frame for receiver, frame in meeting.seen if receiver == "dialled")
    again = Handshake(DIALLED, None, b"n" * NONCE_BYTES, lambda _: None)
    assert again.receive(hello) is None
    with pytest.raises(HandshakeRefused, match="secret"):
        again.receive(proof)


def test_a_proof_of_the_other_side_is_none_of_ours() -> None:
    meeting = Meeting(VOTER, DIALLED)
    meeting.take_place()
    hello = next(frame for receiver, frame in meeting.seen if receiver == "dialled")
    proofs: list[bytes] = []
    reflected = Handshake(DIALLED, None, b"l" * NONCE_BYTES, proofs.append)
    reflected.receive(hello)
    with pytest.raises(HandshakeRefused, match="secret"):
        reflected.receive(proofs[1])


def test_a_refusal_has_its_reason() -> None:
    with pytest.raises(RefusedByPeer, match="because"):
        Handshake(VOTER, ONE, b"d" * NONCE_BYTES, lambda _: None).receive(refusal("because"))


@pytest.mark.parametrize("frame", [b"", b"GET / HTTP/1.1\r\n", refusal("x")[:-1], b"\x92\x02\xc4\x00", b"\x91\x01"])
def test_anything_else_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Handshake(DIALLED, None, b"l" * NONCE_BYTES, lambda _: None).receive(frame)
