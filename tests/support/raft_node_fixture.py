"""One Raft node on a simulated disk without a network: the test plays its peers, message by message."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from quorum_fixture import ONE, options_of_one

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.loop import SimulatedLoop
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.journal import Journal
from cordwood.cluster.metadata.raft.election import Host
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.messages import (
    Append,
    AppendReply,
    Install,
    Message,
    PreVote,
    PreVoteRequest,
    Row,
    Vote,
)
from cordwood.cluster.metadata.raft.node import RaftMessage, RaftNode
from cordwood.storage.disk import sync_directory
from cordwood.storage.steps import Steps

PATH = "/data/journal"
TWO, THREE, FOUR, FIVE = map(BrokerId, (2, 3, 4, 5))


class NodeFixture:
    """Node 1 of `voters`. All peers are connected; the test answers for them."""

    def __init__(self, loop: SimulatedLoop, voters: int = 3) -> None:
        self._loop = loop
        self.disk = SimulatedDisk(random.Random(1))
        self.disk.make_directories("/data")
        sync_directory(self.disk, "/")
        self.sent: list[tuple[int, Message]] = []
        self.applied: list[Row] = []
        self.pauses = 0
        """Pauses while entries are applied."""
        self.installing: list[Install] = []
        self.was_readmitted = False
        self.others = tuple(BrokerId(voter) for voter in range(2, voters + 1))
        self.start()

    def start(self) -> "NodeFixture":
        """Start the node, or restart it from its disk."""
        self.log = RaftLog(Journal.open(self.disk, PATH))
        host = Host(self._loop.time, self.send, self._apply, self.packed_image, self.installing.append, self.readmit)
        voters = dict.fromkeys((ONE, *self.others), ("", 0))
        self.node = RaftNode(options_of_one(random.Random(7), voters=voters), self.log, 0, host)
        self.node.may_vote = True
        for other in self.others:
            self.node.connected(other)
        return self

    def _apply(self, rows: tuple[Row, ...]) -> Steps[None]:
        for _ in range(self.pauses):
            yield
        self.applied.extend(rows)

    def receive(self, sender: int, message: RaftMessage) -> list[Message]:
        """Deliver a message and return the immediate replies to its sender."""
        before = len(self.sent)
        self.node.receive(BrokerId(sender), message)
        return [sent for receiver, sent in self.sent[before:] if receiver == sender]

    def flush(self) -> "NodeFixture":
        self.log.flush(self.node.commit_index)
        self.node.flushed()
        return self

    def tick(self, seconds: float = 0.0) -> "NodeFixture":
        self._loop.passed_s += seconds
        self.node.tick()
        return self

    def asked_to_be_elected(self) -> "NodeFixture":
        """Let the election timeout pass and grant all pre-votes, so that the node requests votes."""
        self.tick(2.0)
        nonce = self.last(PreVoteRequest).nonce
        for other in self.others:
            self.node.receive(other, PreVote(self.node.term, nonce, True))
        return self.tick()

    def elected(self) -> "NodeFixture":
        """Make the node leader, with the no-op entry of its term on disk."""
        self.asked_to_be_elected()
        for other in self.others:
            self.node.receive(other, Vote(self.node.term))
        assert self.node.is_leader
        return self.flush()

    def confirm(self, *followers: int, end: int, term: int | None = None, may_vote: bool = True) -> "NodeFixture":
        """Have these followers confirm the log up to `end`."""
        for follower in followers:
            reply = AppendReply(self.node.term if term is None else term, end, may_vote)
            self.node.receive(BrokerId(follower), reply)
        return self

    def follow(self, leader: int, term: int, *terms: int, commit_index: int = 0) -> "NodeFixture":
        """Append a log from its beginning as a follower, with one entry for each of these terms."""
        rows = tuple((entry(index, of_term), index, of_term) for index, of_term in enumerate(terms, 1))
        self.receive(leader, Append(term, 0, 0, commit_index, rows))
        return self.flush()

    def terms(self) -> list[int]:
        """Return the terms of the entries in the log."""
        return [term for _, _, term in self.log.between(0, self.log.end)]

    def last(self, kind: type) -> Message:
        return [message for _, message in self.sent if type(message) is kind][-1]

    def send(self, receiver: BrokerId, message: Message) -> bool:
        self.sent.append((receiver, message))
        return True

    def packed_image(self) -> Install:
        return Install(self.node.term, self.node.applied_index, self.node.term, b"image")

    def readmit(self) -> None:
        self.was_readmitted = self.node.may_vote = True


def entry(index: int, term: int) -> bytes:
    return f"entry {index} of {term}".encode()


@contextmanager
def in_no_time() -> Iterator[SimulatedLoop]:
    """Yield a running loop in virtual time, for code that reads the time and awaits nothing."""
    loop = SimulatedLoop()
    asyncio._set_running_loop(loop)
    try:
        yield loop
    finally:
        asyncio._set_running_loop(None)
        loop.close()


@contextmanager
def node_in_no_time(voters: int = 3) -> Iterator[NodeFixture]:
    """Yield a node that a test drives without a running loop."""
    with in_no_time() as loop:
        yield NodeFixture(loop, voters)
