"""Raft leader election: pre-votes, votes that count once per voter, and no votes of amnesiacs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.quorum import QuorumOptions
from cordwood.cluster.metadata.raft.library import Library, Role
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.messages import (
    Install,
    Message,
    PreVote,
    PreVoteRequest,
    Resign,
    Row,
    Vote,
    VoteRequest,
)
from cordwood.storage.steps import Steps


@dataclass(frozen=True, slots=True)
class Host:
    """The environment of a Raft node: its peers, image, disk and clock."""

    now_s: Callable[[], float]
    send: Callable[[BrokerId, Message], bool]
    """Sends a message. Returns False if the receiver is not connected or does not keep up: the node retries later."""
    apply: Callable[[tuple[Row, ...]], Steps[None]]
    """Applies committed entries, in steps."""
    packed_image: Callable[[], Install | None]
    """Returns an image that ends within the log, for this term, or None while it is being encoded."""
    install: Callable[[Install], None]
    """Replaces the image, and calls `installed` afterwards. A newer image replaces one that is waiting."""
    readmitted: Callable[[], None]
    """Makes this voter a member, which may vote again. Durable on return."""


HUNG_UP_S = (0.15, 0.4)
"""The time that a leader has to reconnect; random, so that not all voters become candidates together."""


class Elector(Library):
    """The election part of a Raft node. `may_vote` is false for an amnesiac, which has forgotten its votes."""

    def __init__(self, options: QuorumOptions, log: RaftLog, applied: int, host: Host) -> None:
        self._me, self._configured = options.node_id, options.voters
        self._host, self.log = host, log
        self.voters: tuple[BrokerId, ...] = ()
        """The voters in force, in ascending order."""
        self.others: tuple[BrokerId, ...] = ()
        self.is_voter = False
        self.may_vote = False
        self._nonce = 0
        self._willing: set[BrokerId] = set()
        self._shall_stand = False
        self._voted_for_us: set[BrokerId] = set()
        self._voted_term = 0
        self._leader_heard_at_s = float("-inf")
        super().__init__(options, log, applied)
        log.voters_changed = self.voters_changed
        self.voters_changed()

    def voters_changed(self) -> None:
        """Take the voters in force: those of the newest entry that has a set, committed or not."""
        self.voters = tuple(sorted(self.log.voter_log.voters or self._configured))
        self.others = tuple(voter for voter in self.voters if voter != self._me)
        self.is_voter = self._me in self.voters
        self.change_others(self.others)

    def tick(self) -> None:
        """Advance the time. Call this after every message and proposal, and at intervals."""
        if self._shall_stand:
            # The library becomes a candidate in this tick: it writes its own vote to disk, then requests votes.
            self._shall_stand = False
            self.forget_leader()
            self.deadline_s = float("-inf")
            self.doTick(0.0)
            return
        if self.role is not Role.LEADER and self.deadline_s < self._host.now_s():
            self.put_off_election()
            if self.may_vote and self._may_stand:
                self._ask_who_is_willing()
        if self.role is not Role.LEADER:
            # All that the library's tick does here. It reads the clock again: a deadline that passes in between must
            # not make a candidate of a voter without a pre-vote, or that may not vote.
            self.apply_committed()
            return
        self.doTick(0.0)

    def stand_no_more(self) -> None:
        """Cancel a pre-vote: there is a leader, perhaps this node, and pre-votes granted before may no longer hold."""
        self._willing = set()
        self._shall_stand = False

    @property
    def _may_stand(self) -> bool:
        """True for a voter, and for one whose removal is not known to be committed (Ongaro 4.2.2).

        Its log may have the removal and no other log: without its candidacy no voter could win an election.
        """
        voter_log = self.log.voter_log
        return self.is_voter or (
            voter_log.index > self.commit_index and self._me in (voter_log.before or self._configured)
        )

    def _is_majority(self, voters: set[BrokerId]) -> bool:
        """Return whether these are more than half of the voters in force."""
        counted = len(voters & set(self.others)) + (self.is_voter and self._me in voters)
        return counted > (len(self.others) + self.is_voter) // 2

    def _ask_who_is_willing(self) -> None:
        self._nonce += 1
        self._willing = {self._me}
        for other in self.others:
            self._host.send(other, PreVoteRequest(self.term, self._nonce, self.log.end, self.log.end_term))
        self._stand_if_a_majority_is_willing()

    def _stand_if_a_majority_is_willing(self) -> None:
        if self._is_majority(self._willing):
            self._willing = set()
            self._shall_stand = True

    def on_pre_vote_request(self, sender: BrokerId, request: PreVoteRequest) -> None:
        """Grant a pre-vote if this voter would vote for the log, and has no leader that sends messages."""
        is_granted = (
            self.may_vote
            and self.role is not Role.LEADER
            and request.term >= self.term
            and (request.last_term, request.last_index) >= (self.log.end_term, self.log.end)
            and self._host.now_s() - self._leader_heard_at_s > self._timing.election_timeout_min_s
        )
        self._host.send(sender, PreVote(self.term, request.nonce, is_granted))

    def on_pre_vote(self, sender: BrokerId, answer: PreVote) -> None:
        if answer.term > self.term:
            self.step_down(answer.term)
        elif answer.is_granted and self._willing and answer.nonce == self._nonce:
            self._willing.add(sender)
            self._stand_if_a_majority_is_willing()

    def on_vote_request(self, sender: BrokerId, request: VoteRequest) -> None:
        if self.may_vote:
            self.library_receive(
                sender,
                {
                    "type": "request_vote",
                    "term": request.term,
                    "last_log_index": request.last_index,
                    "last_log_term": request.last_term,
                },
            )

    def on_vote(self, sender: BrokerId, vote: Vote) -> None:
        """Count a vote once per voter: the library counts messages, so each vote is passed on once.

        The library counts this node's own vote. A voter that is being removed has none: it needs its majority first.
        """
        if sender not in self.others:
            return
        if self._voted_term != self.term:
            self._voted_for_us, self._voted_term = set(), self.term
        if self.role is Role.CANDIDATE and vote.term == self.term and sender not in self._voted_for_us:
            self._voted_for_us.add(sender)
            if self.is_voter:
                self.library_receive(sender, {"type": "response_vote", "term": vote.term})
            while not self.is_voter and self.role is Role.CANDIDATE and self._is_majority(self._voted_for_us):
                self.library_receive(sender, {"type": "response_vote", "term": vote.term})

    def on_resign(self, sender: BrokerId, message: Resign) -> None:
        """Prepare for the leader's stop: its successor stands immediately, and the others grant pre-votes."""
        if sender == self.leader and message.term == self.term:
            self._leader_heard_at_s = float("-inf")
            if message.successor == self._me:
                self.deadline_s = float("-inf")

    def leader_hung_up(self) -> None:
        """React to the end of the leader's connection: begin a pre-vote soon, unless the leader reconnects.

        This is always safe: voters that still get the leader's messages grant no pre-vote.
        """
        self._leader_heard_at_s = float("-inf")
        soon = self._host.now_s() + self._rng.uniform(*HUNG_UP_S)
        self.deadline_s = min(self.deadline_s, soon)

    def library_sent(self, receiver: BrokerId, message: Mapping[str, Any]) -> None:
        match message["type"]:
            case "request_vote":
                request = VoteRequest(message["term"], message["last_log_index"], message["last_log_term"])
                self._host.send(receiver, request)
            case "response_vote":
                self._host.send(receiver, Vote(message["term"]))
            case other:
                raise AssertionError(f"the library is not to send {other} by itself")
