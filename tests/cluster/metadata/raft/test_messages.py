"""Encoding of Raft messages: round trips, and refusal of everything else (Raft rule 9)."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.packed import pack
from cordwood.cluster.metadata.quorum import Heartbeat
from cordwood.cluster.metadata.raft.messages import (
    Alive,
    Append,
    AppendReply,
    Committed,
    Follow,
    Install,
    MalformedMessage,
    Message,
    MyStanding,
    PreVote,
    PreVoteRequest,
    Propose,
    Readmit,
    Resign,
    Vote,
    VoteRequest,
    decode,
    encode,
)

HEARTBEAT = Heartbeat(BrokerId(3), UUID(int=5), 17, 29, True)
ROWS = ((b"a", 4, 1), (b"b", 5, 2))
MESSAGES: list[Message] = [
    MyStanding(1),
    PreVoteRequest(1, 2, 3, 4),
    PreVote(1, 2, True),
    VoteRequest(1, 2, 3),
    Vote(1),
    Append(1, 3, 1, 2),
    Append(1, 3, 1, 2, ROWS),
    AppendReply(1, 2, True),
    AppendReply(1, 2, False, 7),
    Install(1, 2, 3, b"image"),
    Readmit(1, 2),
    Propose(b"entry"),
    Resign(1, 2),
    Alive.of(HEARTBEAT),
    Follow(7),
    Committed(None, 1, 2),
    Committed(3, 1, 2, ROWS),
]


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_message_comes_back_as_it_was_sent(message: Message) -> None:
    assert decode(encode(message)) == message


def test_a_heartbeat_comes_back_whole() -> None:
    assert Alive.of(HEARTBEAT).heartbeat() == HEARTBEAT


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [99],
        [5],
        [5, 1, 1],
        [5, "1"],
        [5, True],
        [5, -1],
        [5, 1 << 63],
        [10, "text"],
        [6, 1, 3, 1, 2, [[b"a", 4]]],
        [6, 1, 3, 1, 2, [[b"a", 4, 1], [b"b", 6, 1]]],
        [6, 1, 3, 1, 2, [[b"a", 4, 2], [b"b", 5, 1]]],
        [[], 1],
    ],
    ids=repr,
)
def test_what_no_broker_sends_is_refused(fields: list[object]) -> None:
    with pytest.raises(MalformedMessage):
        decode(pack(fields))


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedMessage:
        return
    assert decode(encode(message)) == message
