"""The Raft rules that PySyncObj lacks, each with the messages that broke it (docs/adr/0010)."""

from collections.abc import Iterator

import pytest
from pysyncobj import syncobj
from quorum_fixture import ONE
from raft_node_fixture import FIVE, FOUR, THREE, TWO, NodeFixture, entry, node_in_no_time

from cordwood.chaos.sim.faults import Died
from cordwood.cluster.metadata.raft.election import HUNG_UP_S
from cordwood.cluster.metadata.raft.messages import (
    Append,
    AppendReply,
    Contradiction,
    Install,
    MalformedMessage,
    PreVote,
    PreVoteRequest,
    Readmit,
    Resign,
    Vote,
    VoteRequest,
)
from cordwood.cluster.metadata.raft.node import IMAGE_TIMEOUT_S


@pytest.fixture
def raft() -> Iterator[NodeFixture]:
    with node_in_no_time() as fixture:
        yield fixture


@pytest.fixture
def raft_of_five() -> Iterator[NodeFixture]:
    with node_in_no_time(voters=5) as fixture:
        yield fixture


def test_a_voter_asks_before_it_disturbs_anybody(raft: NodeFixture) -> None:
    raft.tick(2.0)
    assert {type(message) for _, message in raft.sent} == {PreVoteRequest}
    assert raft.node.term == 0


def test_a_voter_that_hears_its_leader_is_not_willing(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    assert raft.receive(THREE, PreVoteRequest(1, 5, 9, 9)) == [PreVote(1, 5, False)]
    raft.tick(0.6)
    assert raft.receive(THREE, PreVoteRequest(1, 6, 9, 9)) == [PreVote(1, 6, True)]


def test_a_voter_is_not_willing_for_a_log_that_ends_before_its_own(raft: NodeFixture) -> None:
    raft.follow(TWO, 2, 1, 2).tick(2.0)
    assert raft.receive(THREE, PreVoteRequest(2, 5, 1, 2)) == [PreVote(2, 5, False)]
    assert raft.receive(THREE, PreVoteRequest(2, 6, 9, 1)) == [PreVote(2, 6, False)]


def test_who_may_not_vote_is_not_willing_either(raft: NodeFixture) -> None:
    raft.tick(2.0)
    assert raft.receive(THREE, PreVoteRequest(1, 5, 9, 9)) == [PreVote(0, 5, True)]
    raft.node.may_vote = False
    assert raft.receive(THREE, PreVoteRequest(1, 6, 9, 9)) == [PreVote(0, 6, False)]


def test_a_vote_is_counted_once_for_each_voter(raft_of_five: NodeFixture) -> None:
    raft = raft_of_five.asked_to_be_elected()
    for _ in range(3):
        raft.node.receive(TWO, Vote(raft.node.term))
    assert not raft.node.is_leader
    raft.node.receive(THREE, Vote(raft.node.term))
    assert raft.node.is_leader


def test_a_vote_for_an_earlier_term_is_none(raft: NodeFixture) -> None:
    raft.asked_to_be_elected().tick(2.0).asked_to_be_elected()
    raft.node.receive(TWO, Vote(raft.node.term - 1))
    assert not raft.node.is_leader
    raft.node.receive(TWO, Vote(raft.node.term))
    assert raft.node.is_leader, "a late vote takes the place of none"


def test_a_vote_is_on_disk_before_it_leaves(raft: NodeFixture) -> None:
    assert raft.receive(TWO, VoteRequest(1, 0, 0)) == [Vote(1)]
    raft.disk.power_cut(keep=0)
    raft.start()
    assert raft.node.term == 1
    assert raft.receive(THREE, VoteRequest(1, 0, 0)) == []


def test_a_vote_that_cannot_be_written_is_not_given(raft: NodeFixture) -> None:
    raft.disk.faults.die_after(0)
    with pytest.raises(Died):
        raft.receive(TWO, VoteRequest(1, 0, 0))
    assert not any(isinstance(message, Vote) for _, message in raft.sent)


def test_who_has_forgotten_its_votes_neither_votes_nor_stands(raft: NodeFixture) -> None:
    raft.node.may_vote = False
    assert raft.receive(TWO, VoteRequest(1, 0, 0)) == []
    assert raft.receive(TWO, PreVoteRequest(1, 1, 0, 0)) == [PreVote(0, 1, False)]
    raft.sent.clear()
    raft.tick(5.0).tick(5.0)
    assert raft.sent == []


@pytest.mark.parametrize("may_vote", [True, False])
def test_no_voter_stands_because_its_time_is_over_within_a_tick(
    raft: NodeFixture, monkeypatch: pytest.MonkeyPatch, may_vote: bool
) -> None:
    raft.node.may_vote = may_vote
    deadline_s = raft.node.deadline_s
    monkeypatch.setattr(syncobj, "monotonicTime", lambda: deadline_s + 0.001)
    raft.tick(0.0)
    assert (raft.node.term, raft.sent, raft.node.deadline_s) == (0, [], deadline_s)


def test_what_is_not_on_disk_is_not_confirmed(raft: NodeFixture) -> None:
    replies = raft.receive(TWO, Append(1, 0, 0, 0, ((b"a", 1, 1),)))
    assert replies == [AppendReply(1, 0, True)]
    raft.flush()
    assert raft.sent[-1] == (TWO, AppendReply(1, 1, True))


def test_a_leader_does_not_count_what_it_has_not_on_disk(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=1)
    assert raft.node.commit_index == 1
    raft.node.append(b"a")
    raft.confirm(TWO, end=2)
    assert raft.node.commit_index == 1
    assert raft.flush().node.commit_index == 2


def test_an_append_that_comes_again_truncates_nothing(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1, 1, 1)
    raft.receive(TWO, Append(1, 0, 0, 0, ((entry(1, 1), 1, 1),)))
    raft.receive(TWO, Append(1, 1, 1, 0))
    assert raft.terms() == [1, 1, 1]


def test_a_tail_that_differs_gives_way(raft: NodeFixture) -> None:
    raft.follow(TWO, 2, 1, 2, 2)
    raft.receive(THREE, Append(3, 1, 1, 0, ((b"x", 2, 3),)))
    assert raft.terms() == [1, 3]


def test_a_truncation_is_remembered_and_what_came_instead_is_flushed_anew(raft: NodeFixture) -> None:
    raft.follow(TWO, 2, 1, 2, 2)
    replies = raft.receive(THREE, Append(3, 1, 1, 0, ((b"x", 2, 3),)))
    assert replies == [AppendReply(3, 1, True)]
    raft.flush()
    raft.disk.power_cut(keep=0)
    assert raft.start().terms() == [1, 3]


def test_nothing_committed_is_ever_truncated(raft: NodeFixture) -> None:
    raft.follow(TWO, 2, 1, 2, commit_index=2)
    with pytest.raises(Contradiction, match="entry 2 is committed"):
        raft.receive(THREE, Append(3, 1, 1, 0, ((b"x", 2, 3),)))


def test_only_what_this_leader_vouched_for_is_committed(raft: NodeFixture) -> None:
    raft.follow(TWO, 2, 1, 2, 2)
    raft.receive(THREE, Append(3, 1, 1, 3))
    assert raft.node.commit_index == 1


def test_the_answer_to_a_gap_names_the_end_and_to_a_conflict_the_term_before(raft: NodeFixture) -> None:
    raft.follow(TWO, 3, 1, 1, 2, 2)
    assert raft.receive(THREE, Append(4, 9, 4, 0)) == [AppendReply(4, 4, True, 9)]
    assert raft.receive(THREE, Append(4, 4, 3, 0)) == [AppendReply(4, 2, True, 4)]


def test_a_reply_to_an_earlier_leadership_is_dropped(raft_of_five: NodeFixture) -> None:
    raft = raft_of_five.elected()
    raft.node.append(b"a", b"b")
    raft.flush().confirm(TWO, THREE, end=3, term=0)
    assert raft.node.commit_index == 0
    raft.confirm(TWO, THREE, end=3)
    assert raft.node.commit_index == 3


def test_a_reply_from_a_later_term_deposes(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=0, term=9)
    assert not raft.node.is_leader
    assert raft.node.term == 9


def test_entries_of_earlier_terms_are_committed_only_with_one_of_ours(raft_of_five: NodeFixture) -> None:
    raft = raft_of_five.follow(TWO, 1, 1, 1).elected()
    raft.confirm(TWO, THREE, end=2)
    assert raft.node.commit_index == 0
    raft.confirm(FOUR, FIVE, end=3)
    assert raft.node.commit_index == 3


def test_a_late_rejection_does_not_send_everything_again(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=1)
    assert raft.receive(TWO, AppendReply(raft.node.term, 0, True, 1)) == []


def test_a_conflicting_tail_with_a_backlog_is_overcome_in_few_messages(raft: NodeFixture) -> None:
    raft.elected()
    raft.node.append(*(b"x" * 600_000 for _ in range(20)))
    raft.flush().sent.clear()
    probes = [message for _, message in raft.sent if isinstance(message, Append)]
    for _ in range(3):
        # One identical rejection for each message in flight.
        probes += [sent for sent in raft.receive(TWO, AppendReply(1, 0, True, 21)) if isinstance(sent, Append)]
    assert sum(len(probe.entries) for probe in probes) == 0
    sent = raft.receive(TWO, AppendReply(1, 0, True))
    assert [row[1] for message in sent if isinstance(message, Append) for row in message.entries] == [*range(1, 22)]


def test_the_copy_of_who_may_not_vote_does_not_count(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=1, may_vote=False)
    assert raft.node.commit_index == 0
    raft.confirm(THREE, end=1)
    assert raft.node.commit_index == 1


def test_an_amnesiac_is_readmitted_after_a_barrier_that_others_committed(raft: NodeFixture) -> None:
    raft.elected().confirm(THREE, end=1)
    raft.confirm(TWO, end=1, may_vote=False).flush()
    assert raft.log.end == 2
    assert not any(isinstance(message, Readmit) for _, message in raft.sent)
    raft.confirm(TWO, end=2, may_vote=False)
    assert not any(isinstance(message, Readmit) for _, message in raft.sent)
    raft.confirm(THREE, end=2).confirm(TWO, end=2, may_vote=False)
    assert raft.sent[-1] == (TWO, Readmit(1, 2))


def test_a_barrier_from_before_an_amnesiac_came_back_does_not_readmit_it(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=1, may_vote=False).flush().confirm(THREE, end=2)
    raft.node.disconnected(TWO)
    raft.node.connected(TWO)
    raft.confirm(TWO, end=2, may_vote=False)
    assert not any(isinstance(message, Readmit) for _, message in raft.sent)
    assert raft.log.end == 3


def test_a_connection_that_replaces_another_needs_a_barrier_of_its_own(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=1, may_vote=False).flush().confirm(THREE, end=2)
    raft.node.connected(TWO)
    raft.confirm(TWO, end=2, may_vote=False)
    assert not any(isinstance(message, Readmit) for _, message in raft.sent)
    assert raft.log.end == 3


def test_a_barrier_of_an_earlier_term_does_not_readmit_an_amnesiac(raft: NodeFixture) -> None:
    raft.elected().confirm(TWO, end=1, may_vote=False).flush()
    assert raft.log.end == 2
    raft.receive(THREE, Append(raft.node.term + 1, 0, 0, 0, ()))
    assert not raft.node.is_leader
    raft.elected().confirm(THREE, end=3)
    assert raft.node.commit_index == raft.log.end == 3
    raft.confirm(TWO, end=3, may_vote=False)
    assert not any(isinstance(message, Readmit) for _, message in raft.sent)
    assert raft.log.end == 4


def test_an_amnesiac_takes_readmission_only_with_the_log_to_show_for_it(raft: NodeFixture) -> None:
    raft.node.may_vote = False
    raft.follow(TWO, 2, 1, 2)
    for sender, readmission in ((TWO, Readmit(2, 3)), (THREE, Readmit(2, 2)), (TWO, Readmit(1, 2))):
        raft.node.receive(sender, readmission)
        assert not raft.was_readmitted
    raft.node.receive(TWO, Readmit(2, 2))
    assert raft.was_readmitted


def test_an_amnesiac_takes_readmission_only_once_the_log_is_on_its_disk(raft: NodeFixture) -> None:
    raft.node.may_vote = False
    rows = tuple((entry(index, 2), index, 2) for index in (1, 2))
    raft.receive(TWO, Append(2, 0, 0, 0, rows))
    raft.node.receive(TWO, Readmit(2, 2))
    assert not raft.was_readmitted
    raft.flush().node.receive(TWO, Readmit(2, 2))
    assert raft.was_readmitted


def test_entries_count_as_applied_after_their_last_part(raft: NodeFixture) -> None:
    raft.pauses = 2
    raft.follow(TWO, 1, 1, 1, commit_index=2)
    indexes = []
    for _ in range(4):
        raft.tick()
        indexes.append(raft.node.applied_index)
    assert indexes == [0, 0, 2, 2]
    assert [index for _, index, _ in raft.applied] == [1, 2]


def test_entries_that_are_being_applied_give_way_to_an_image(raft: NodeFixture) -> None:
    raft.pauses = 1
    raft.follow(TWO, 1, 1, 1, commit_index=2).tick()
    raft.receive(TWO, Install(1, 7, 1, b"image"))
    raft.node.installed(7, 1, {})
    raft.tick()
    assert (raft.applied, raft.node.applied_index) == ([], 7)
    raft.receive(TWO, Append(1, 7, 1, 8, ((entry(8, 1), 8, 1),)))
    raft.flush().tick().tick()
    assert ([index for _, index, _ in raft.applied], raft.node.applied_index) == ([8], 8)


def test_an_image_never_takes_a_follower_back(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1, 1, 1, commit_index=3)
    for index in (2, 3):
        assert raft.receive(TWO, Install(1, index, 1, b"image")) == [AppendReply(1, 3, True)]
    assert raft.installing == []


def test_a_follower_that_falls_behind_again_gets_another_image_at_once(raft: NodeFixture) -> None:
    raft.elected().node.append(b"a", b"b", b"c")
    raft.flush().confirm(THREE, end=4).tick()
    raft.log.drop_before(4, 4)
    raft.node.connected(TWO)
    assert raft.receive(TWO, AppendReply(1, 0, True, 4)) == [Install(1, 4, 1, b"image")]
    assert raft.receive(TWO, AppendReply(1, 0, True, 4)) == [], "one image at a time"
    raft.confirm(TWO, end=4).node.append(b"d", b"e")
    raft.flush().confirm(THREE, end=6).tick()
    raft.log.drop_before(6, 6)
    # The entries behind the image are lost on the way.
    assert raft.receive(TWO, AppendReply(1, 4, True, 6)) == [Install(1, 6, 1, b"image")]


def test_a_leader_decides_once_it_has_applied_the_entries_before_its_term(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1, 1).elected()
    assert not raft.node.is_active
    raft.confirm(TWO, end=3)
    assert (raft.node.commit_index, raft.node.is_active) == (3, False)
    raft.tick()
    assert (raft.node.applied_index, raft.node.is_active) == (3, True)


def test_a_leader_that_resigns_names_the_follower_with_the_longest_log(raft: NodeFixture) -> None:
    raft.elected().node.append(b"a")
    raft.flush().confirm(TWO, end=1).confirm(THREE, end=2).node.resign()
    assert raft.sent[-2:] == [(TWO, Resign(1, THREE)), (THREE, Resign(1, THREE))]


def test_an_image_takes_the_place_of_a_log_that_it_is_ahead_of(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    raft.receive(TWO, Install(1, 7, 1, b"image"))
    raft.node.installed(7, 1, {})
    assert (raft.log.base_index, raft.log.end, raft.node.commit_index) == (7, 7, 7)
    assert raft.sent[-1] == (TWO, AppendReply(1, 7, True))


def test_entries_after_an_image_are_kept_where_they_fit(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1, 1, 1, 1)
    raft.receive(TWO, Install(1, 2, 1, b"image"))
    raft.node.installed(2, 1, {})
    assert (raft.log.base_index, raft.log.end) == (2, 4)


def test_a_second_leader_of_a_term_is_refused_and_deposes_no_one(raft: NodeFixture) -> None:
    raft.elected()
    with pytest.raises(Contradiction, match="leader of term 1, which this broker leads"):
        raft.receive(TWO, Append(1, 0, 0, 0))
    assert raft.node.is_leader


def test_entries_that_do_not_follow_are_malformed(raft: NodeFixture) -> None:
    with pytest.raises(MalformedMessage):
        raft.receive(TWO, Append(1, 0, 0, 0, ((b"a", 3, 1),)))


def test_a_leader_that_hears_no_majority_steps_down(raft_of_five: NodeFixture) -> None:
    raft = raft_of_five.elected()
    raft.tick(0.9).confirm(TWO, end=1).tick(0.5)
    assert not raft.node.is_leader


def test_the_successor_of_a_leader_that_resigns_stands_at_once(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    raft.receive(TWO, Resign(1, 1))
    raft.sent.clear()
    raft.tick()
    assert {type(message) for _, message in raft.sent} == {PreVoteRequest}


def test_a_voter_is_willing_at_once_after_its_leader_has_resigned(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    raft.receive(TWO, Resign(1, THREE))
    assert raft.receive(THREE, PreVoteRequest(1, 5, 9, 9)) == [PreVote(1, 5, True)]


def test_a_leader_of_an_earlier_term_learns_of_the_later_one(raft: NodeFixture) -> None:
    raft.follow(TWO, 3, 1)
    for late in (Append(2, 1, 1, 0), Install(2, 7, 1, b"image")):
        assert raft.receive(THREE, late) == [AppendReply(3, 0, True)]
    assert (raft.node.leader, raft.installing) == (TWO, [])


def test_a_leader_is_not_willing(raft: NodeFixture) -> None:
    raft.elected().tick(0.9)
    assert raft.receive(THREE, PreVoteRequest(1, 5, 9, 9)) == [PreVote(1, 5, False)]


def test_an_unwilling_voter_of_a_later_term_ends_the_earlier_one(raft: NodeFixture) -> None:
    raft.tick(2.0)
    raft.receive(TWO, PreVote(5, raft.last(PreVoteRequest).nonce, False))
    assert raft.node.term == 5


def test_pre_votes_count_for_one_attempt_and_not_under_a_leader(raft_of_five: NodeFixture) -> None:
    raft = raft_of_five.tick(2.0)
    first = raft.last(PreVoteRequest).nonce
    raft.receive(TWO, PreVote(0, first, True))
    raft.tick(2.0)
    assert raft.last(PreVoteRequest).nonce != first
    for voter in (TWO, THREE):
        raft.receive(voter, PreVote(0, first, True))
    assert raft.tick().node.term == 0, "these are answers to the first attempt"
    raft.receive(TWO, PreVote(0, raft.last(PreVoteRequest).nonce, True))
    raft.receive(FOUR, Append(0, 0, 0, 0))
    raft.receive(THREE, PreVote(0, raft.last(PreVoteRequest).nonce, True))
    assert raft.tick().node.term == 0, "there is a leader"


@pytest.mark.parametrize("is_elected_first", [True, False])
def test_a_leader_does_not_stand_on_pre_votes_that_it_asked_for_as_a_candidate(
    raft: NodeFixture, *, is_elected_first: bool
) -> None:
    raft.asked_to_be_elected().tick(2.0)
    messages = [(TWO, Vote(1)), (THREE, PreVote(1, raft.last(PreVoteRequest).nonce, True))]
    for sender, message in messages if is_elected_first else reversed(messages):
        raft.receive(sender, message)
    assert raft.tick().node.is_leader
    assert (raft.node.leader, raft.node.term) == (ONE, 1)


def test_an_image_that_is_not_confirmed_is_sent_again(raft: NodeFixture) -> None:
    raft.elected().node.append(b"a")
    raft.flush().confirm(THREE, end=2).tick()
    raft.log.drop_before(2, 2)
    raft.node.connected(TWO)
    assert raft.receive(TWO, AppendReply(1, 0, True, 2)) == [Install(1, 2, 1, b"image")]

    for _ in range(round(2 * IMAGE_TIMEOUT_S) + 1):
        raft.tick(0.5).confirm(THREE, end=2)
    assert raft.receive(TWO, AppendReply(1, 0, True, 2)) == [Install(1, 2, 1, b"image")]


def test_a_follower_stands_soon_after_its_leader_has_hung_up(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1).node.disconnected(THREE)
    raft.tick(HUNG_UP_S[1])
    assert not any(isinstance(message, PreVoteRequest) for _, message in raft.sent)
    raft.follow(TWO, 1, 1).node.disconnected(TWO)
    raft.tick(HUNG_UP_S[1] + 0.01)
    assert any(isinstance(message, PreVoteRequest) for _, message in raft.sent)


def test_only_the_leader_names_a_successor(raft: NodeFixture) -> None:
    raft.follow(TWO, 1, 1)
    for sender, term in ((THREE, 1), (TWO, 0)):
        raft.receive(sender, Resign(term, 1))
    raft.sent.clear()
    assert raft.tick().sent == []


def test_a_follower_that_confirms_more_than_there_is_is_malformed(raft: NodeFixture) -> None:
    raft.elected()
    with pytest.raises(MalformedMessage):
        raft.receive(TWO, AppendReply(1, raft.log.end + 1, True))
