"""Who may lead: voters ask before they stand, count each vote once, and vote only if they remember their votes."""

import random
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.library import Library, Role, Timing
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


class Host(Protocol):
    """What surrounds a Raft node: its peers, its image, its disk and its clock."""

    def now_s(self) -> float: ...

    def send(self, receiver: BrokerId, message: Message) -> bool:
        """False where it cannot be reached, or does not keep up: then it is sent again, later."""
        ...

    def apply(self, rows: tuple[Row, ...]) -> None:
        """These entries are final."""
        ...

    def packed_image(self) -> Install | None:
        """An image that the log goes on behind, to be sent in this term; None while it is being made ready."""
        ...

    def install(self, image: Install) -> None:
        """Put an image in the place of ours, and call `installed`. A later one takes the place of one that waits."""
        ...

    def readmitted(self) -> None:
        """This voter may vote again. Durable when it returns."""
        ...


HUNG_UP_S = (0.15, 0.4)
"""How long a leader whose connection has ended may take to call again; by random, so that voters do not all stand."""


class Elector(Library):
    """The part of a node that has to do with elections. `may_vote` is false for who has forgotten its votes."""

    def __init__(
        self,
        me: BrokerId,
        others: Iterable[BrokerId],
        log: RaftLog,
        applied: int,
        host: Host,
        timing: Timing,
        rng: random.Random,
    ) -> None:
        self._me, self.others = me, tuple(sorted(others))
        self._host, self.log = host, log
        self.may_vote = False
        self._nonce = 0
        self._willing: set[BrokerId] = set()
        self._shall_stand = False
        self._voted_for_us: set[BrokerId] = set()
        self._voted_term = 0
        self._leader_heard_at_s = float("-inf")
        super().__init__(me, self.others, log, applied, timing, rng)

    def tick(self) -> None:
        """Let time pass. To be called after every message and proposal, and every now and then."""
        if self._shall_stand:
            # The library stands at once: it writes down its own vote, then asks for the others'.
            self._shall_stand = False
            self.forget_leader()
            self.deadline_s = float("-inf")
        elif self.role is not Role.LEADER and self.deadline_s < self._host.now_s():
            self.put_off_election()
            if self.may_vote:
                self._ask_who_is_willing()
        self.doTick(0.0)

    def stand_no_more(self) -> None:
        """There is a leader. Whoever was willing before may not be now."""
        self._willing = set()
        self._shall_stand = False

    def _ask_who_is_willing(self) -> None:
        self._nonce += 1
        self._willing = {self._me}
        for other in self.others:
            self._host.send(other, PreVoteRequest(self.term, self._nonce, self.log.end, self.log.end_term))
        self._stand_if_a_majority_is_willing()

    def _stand_if_a_majority_is_willing(self) -> None:
        if len(self._willing) > (len(self.others) + 1) // 2:
            self._willing = set()
            self._shall_stand = True

    def on_pre_vote_request(self, sender: BrokerId, request: PreVoteRequest) -> None:
        """Willing is who would vote for the log, and misses the leader too."""
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
        """The library counts votes, not voters: each is shown to it once."""
        if self._voted_term != self.term:
            self._voted_for_us, self._voted_term = set(), self.term
        if self.role is Role.CANDIDATE and vote.term == self.term and sender not in self._voted_for_us:
            self._voted_for_us.add(sender)
            self.library_receive(sender, {"type": "response_vote", "term": vote.term})

    def on_resign(self, sender: BrokerId, message: Resign) -> None:
        """The leader stops: its successor need not wait until it is missed."""
        if sender == self.leader and message.term == self.term:
            self._leader_heard_at_s = float("-inf")
            if message.successor == self._me:
                self.deadline_s = float("-inf")

    def leader_hung_up(self) -> None:
        """A killed leader need not be waited for: unless it calls again at once, we ask who else misses it.

        That is safe whatever has happened: those who still hear it are not willing.
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
