"""The rules of a Raft node whose voters change, each with the messages that break a node without it (docs/adr/0042)."""

from collections.abc import Iterator

import pytest
from raft_node_fixture import FIVE, FOUR, THREE, TWO, NodeFixture, entry, node_in_no_time

from cordwood.cluster.metadata.command_codec import encode
from cordwood.cluster.metadata.commands import AddVoter, BrokerId, RemoveVoter, VoterRow
from cordwood.cluster.metadata.raft import entry as entry_format
from cordwood.cluster.metadata.raft.messages import Append, PreVote, PreVoteRequest, Row, Vote, VoteRequest
from cordwood.cluster.metadata.raft.voter_log import VoterLog
from cordwood.cluster.metadata.voters import of_rows


@pytest.fixture
def raft() -> Iterator[NodeFixture]:
    with node_in_no_time() as fixture:
        yield fixture


def rows_of(*voters: int) -> tuple[VoterRow, ...]:
    return tuple((BrokerId(voter), f"directory-{voter}", f"broker-{voter}", 9093) for voter in voters)


def change(*voters: int) -> bytes:
    """Return an entry after which these are the voters."""
    return entry_format.encode(
        b"tag-%04d" % len(voters), 0, encode(AddVoter(BrokerId(4), "d", "h", 1, rows_of(*voters)))
    )


def removal(*voters: int) -> bytes:
    return entry_format.encode(b"tag-gone", 0, encode(RemoveVoter(BrokerId(1), "d", rows_of(*voters))))


def appended(raft: NodeFixture, *commands: bytes, term: int = 1) -> None:
    """Append entries as a follower of node 2, after the end of the log."""
    end = raft.log.end
    rows: tuple[Row, ...] = tuple((command, end + at, term) for at, command in enumerate(commands, 1))
    raft.receive(TWO, Append(term, end, raft.log.end_term, 0, rows))
    raft.flush()


def test_voters_are_in_force_as_soon_as_they_are_in_the_log(raft: NodeFixture) -> None:
    raft.elected()
    raft.node.append(change(1, 2, 3, 4))
    assert raft.node.voters == (1, 2, 3, 4)
    raft.flush().confirm(TWO, end=2)
    assert raft.node.commit_index < 2, "two of four voters are no majority"
    raft.confirm(THREE, end=2)
    assert raft.node.commit_index == 2


def test_voters_of_truncated_entries_are_in_force_no_more(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    appended(raft, change(1, 2, 3, 4))
    assert raft.node.others == (2, 3, 4)
    raft.receive(THREE, Append(2, 1, 1, 1, ((entry(2, 2), 2, 2),)))
    assert raft.node.others == (2, 3)


def test_a_learner_counts_for_nothing(raft: NodeFixture) -> None:
    raft.elected()
    raft.node.connected(FOUR)
    raft.node.connected(FIVE)
    raft.node.append(entry(2, 1))
    raft.flush().confirm(FOUR, FIVE, end=2)
    assert raft.node.commit_index < 2
    raft.node.receive(FOUR, Vote(1))
    raft.confirm(TWO, end=2)
    assert raft.node.commit_index == 2


def test_a_leader_that_is_removed_does_not_count_and_steps_down(raft: NodeFixture) -> None:
    raft.elected()
    raft.node.append(removal(2, 3))
    raft.flush().confirm(TWO, end=2)
    assert raft.node.commit_index < 2, "one of two voters is no majority"
    assert raft.tick().node.is_leader
    raft.confirm(THREE, end=2)
    assert raft.node.commit_index == 2
    assert not raft.tick().node.is_leader


def test_a_voter_whose_removal_may_be_in_its_log_alone_stands_without_a_vote_of_its_own(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    appended(raft, removal(2, 3))
    assert not raft.node.is_voter
    raft.tick(2.0)
    nonce = next(sent.nonce for _, sent in raft.sent if isinstance(sent, PreVoteRequest))
    raft.node.receive(TWO, PreVote(1, nonce, True))
    raft.tick()
    assert not any(isinstance(sent, VoteRequest) for _, sent in raft.sent), "one of two voters is no majority"
    raft.node.receive(THREE, PreVote(1, nonce, True))
    raft.tick()
    assert raft.node.term == 2
    raft.node.receive(TWO, Vote(2))
    assert not raft.node.is_leader
    raft.node.receive(THREE, Vote(2))
    assert raft.node.is_leader


def test_a_vote_of_another_than_a_voter_is_none(raft: NodeFixture) -> None:
    raft.asked_to_be_elected()
    raft.node.receive(FOUR, Vote(raft.node.term))
    assert not raft.node.is_leader
    raft.node.receive(TWO, Vote(raft.node.term))
    assert raft.node.is_leader


def test_a_learner_never_stands(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    appended(raft, removal(2, 3))
    raft.receive(TWO, Append(1, 2, 1, 2))
    raft.sent.clear()
    raft.tick(2.0).tick(2.0)
    assert not any(isinstance(sent, PreVoteRequest) for _, sent in raft.sent)


def test_the_voters_of_an_image_come_before_those_of_the_entries_after_it() -> None:
    log = VoterLog(5, of_rows(rows_of(1)))
    assert log.extend([(change(1, 2), 4, 1), (b"\1", 6, 1), (change(1, 2, 3), 7, 1)])
    assert (log.index, sorted(log.voters), sorted(log.before)) == (7, [1, 2, 3], [1])
    log.restart(6, of_rows(rows_of(1, 2)))
    assert (log.index, sorted(log.before)) == (7, [1, 2])
    assert log.truncate_from(7)
    assert (log.index, sorted(log.voters)) == (6, [1, 2])
    assert not log.truncate_from(0), "an image is final"
