"""Messages that no voter sends, from voters and learners: a voter refuses them, or goes on, and stops for none."""

import random

import pytest
from raft_node_fixture import FIVE, FOUR, THREE, TWO, NodeFixture, entry, node_in_no_time

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.packed import pack
from cordwood.cluster.metadata.raft.messages import (
    TERM_MAX,
    VOTERS_MAX,
    Append,
    AppendReply,
    Install,
    MalformedMessage,
    Message,
    PreVote,
    PreVoteRequest,
    Readmit,
    Resign,
    Row,
    Vote,
    VoteRequest,
    VotersAre,
    decode,
    encode,
)

BIG = (1 << 63) - 1
STEPS = 30


def number(rng: random.Random, near: int) -> int:
    """Return a number that is likely to be at a boundary of the node's state, or of an integer."""
    return max(0, rng.choice([0, 1, 2, *range(near - 1, near + 3), TERM_MAX, TERM_MAX + 1, 1 << 62, BIG]))


def rows(rng: random.Random, raft: NodeFixture) -> tuple[Row, ...]:
    index, term = number(rng, raft.log.end + 1), number(rng, raft.node.term)
    commands = [rng.choice([b"", b"x", entry(5, 1), bytes(40)]) for _ in range(rng.randrange(4))]
    return tuple((command, min(index + at, BIG), min(term + at % 2, BIG)) for at, command in enumerate(commands))


def hostile(rng: random.Random, raft: NodeFixture) -> Message:
    def term() -> int:
        return number(rng, raft.node.term)

    def index() -> int:
        return number(rng, raft.log.end)

    entries = rows(rng, raft)
    before = max(entries[0][1] - 1, 0) if entries and rng.random() < 0.7 else index()
    return rng.choice(
        [
            PreVoteRequest(term(), index(), index(), term()),
            PreVote(term(), index(), rng.random() < 0.5),
            VoteRequest(term(), index(), term()),
            Vote(term()),
            Append(term(), before, term(), index(), entries),
            Append(term(), before, term(), index(), entries),
            AppendReply(term(), index(), rng.random() < 0.5, rng.choice([None, index()])),
            Install(term(), index(), term(), b"garbage"),
            Readmit(term(), index()),
            Resign(term(), rng.choice([1, 2, 4, BIG])),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_message_stops_a_voter(seed: int) -> None:
    rng = random.Random(seed)
    with node_in_no_time() as raft:
        if rng.random() < 0.5:
            raft.elected()
        else:
            raft.follow(TWO, 1, 1)
        for learner in (FOUR, FIVE):
            raft.node.connected(learner)
        for _ in range(STEPS):
            try:
                raft.receive(rng.choice([TWO, THREE, FOUR, FIVE]), decode(encode(hostile(rng, raft))))  # type: ignore[arg-type]
            except MalformedMessage:
                continue
            if rng.random() < 0.3:
                raft.flush().tick(rng.choice([0.0, 1.0, 5.0]))
            while raft.node.apply_committed():
                pass
            for _, answer in raft.sent:
                assert decode(encode(answer)) == answer, "what it sends is no message that others refuse"
            raft.sent.clear()


@pytest.mark.parametrize(
    "message",
    [
        Vote(TERM_MAX + 1),
        AppendReply(BIG, 1, True),
        Append(1, 0, TERM_MAX + 1, 0),
        Append(1, 0, 0, 0, ((b"", 1, BIG),)),
    ],
    ids=repr,
)
def test_a_term_that_leaves_none_for_later_elections_is_refused(message: Message) -> None:
    with pytest.raises(MalformedMessage):
        decode(encode(message))


def voters_at(*rows: tuple[int, str, int]) -> VotersAre:
    return VotersAre(7, pack(list(rows)))


@pytest.mark.parametrize(
    "message",
    [
        voters_at(*((voter, "host", 9093) for voter in range(VOTERS_MAX + 1))),
        voters_at((-1, "host", 9093)),
        voters_at((1, "", 9093)),
        voters_at((1, "h" * 256, 9093)),
        voters_at((1, "ho\0st", 9093)),
        voters_at((1, "host", 0)),
        voters_at((1, "host", 1 << 16)),
        VotersAre(7, b"garbage"),
    ],
    ids=["many", "negative", "no host", "long host", "NUL", "port 0", "port 65536", "garbage"],
)
def test_voters_that_cannot_be_dialled_are_refused(message: VotersAre) -> None:
    with pytest.raises(MalformedMessage):
        message.addresses()


def test_voters_are_dialled_at_their_addresses() -> None:
    assert voters_at((1, "::1", 1), (2, "host", 65535)).addresses() == {
        BrokerId(1): ("::1", 1),
        BrokerId(2): ("host", 65535),
    }
