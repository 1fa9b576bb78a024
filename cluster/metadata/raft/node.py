"""A Raft node: the leader's part of a voter, and the dispatch of messages. No sockets, no files.

Every message has its sender's term: a reply of an earlier leadership is dropped, and a later term deposes the leader.
"""

from typing import Any, assert_never

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.follower import Follower
from cordwood.cluster.metadata.raft.library import Role
from cordwood.cluster.metadata.raft.log import APPLIED_BYTES_PER_STEP, NO_OP
from cordwood.cluster.metadata.raft.messages import (
    Append,
    AppendReply,
    Install,
    MalformedMessage,
    PreVote,
    PreVoteRequest,
    Readmit,
    Resign,
    Row,
    Vote,
    VoteRequest,
)
from cordwood.cluster.metadata.raft.progress import Progress, majority_has
from cordwood.cluster.metadata.voters import Voters
from cordwood.storage.steps import Steps, run_step

APPEND_BYTES_MAX = 1 << 20
IMAGE_TIMEOUT_S = 5.0
"""The time after which an unconfirmed image is sent again."""

RaftMessage = PreVoteRequest | PreVote | VoteRequest | Vote | Append | AppendReply | Install | Readmit | Resign


class RaftNode(Follower):
    """The leader part of a Raft node. The library counts no followers: it does not know which of them are amnesiacs."""

    def __init__(self, *arguments: Any) -> None:
        self._progress: dict[BrokerId, Progress] = {}
        """By voter, connected or not, and by connected learner."""
        self._progress_term = 0
        self._connected: set[BrokerId] = set()
        self._applying: tuple[Steps[None], int] | None = None
        """Entries of which some steps are applied, and the index of the last one."""
        self._barriers: dict[BrokerId, int] = {}
        super().__init__(*arguments)

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_active(self) -> bool:
        """True if this node leads and has applied every entry committed before its term."""
        return self.is_leader and self._progress_term == self.term and self.applied_index >= self.term_began_index

    def progress_of(self, follower: BrokerId) -> Progress | None:
        """Return the progress of a follower; None unless this node leads."""
        return self._progress.get(follower) if self.is_leader else None

    def is_caught_up(self, follower: BrokerId, missing_max: int) -> bool:
        """Return whether a connected follower counts, and lacks at most this many entries. Only for a leader."""
        progress = self.progress_of(follower)
        is_connected = progress is not None and follower in self._connected
        return is_connected and progress is not None and self.log.end - progress.counted <= missing_max

    @property
    def has_applied_all(self) -> bool:
        """True if the image of this node, which leads, has every entry of its log."""
        return self.is_active and self.applied_index == self.log.end

    def tick(self) -> None:
        super().tick()
        if not self.is_voter and self.is_leader and self.log.voter_log.index <= self.commit_index:
            # The removal is committed. The others get this with the next leader's first entry at the latest.
            self.replicate()
            self.resign()
            self.stop_leading()

    def voters_changed(self) -> None:
        super().voters_changed()
        if self.is_leader:
            for other in self.others:
                self._progress.setdefault(other, Progress(next_index=self.log.end))
            self._forget_progress()

    def receive(self, sender: BrokerId, message: RaftMessage) -> None:
        """Handle a message of another voter or of a learner. Raises MalformedMessage."""
        match message:
            case Append():
                self.on_append(sender, message)
            case AppendReply():
                self._on_append_reply(sender, message)
            case PreVoteRequest():
                self.on_pre_vote_request(sender, message)
            case PreVote():
                self.on_pre_vote(sender, message)
            case VoteRequest():
                self.on_vote_request(sender, message)
            case Vote():
                self.on_vote(sender, message)
            case Install():
                self.on_install(sender, message)
            case Readmit():
                self.on_readmit(sender, message)
            case Resign():
                self.on_resign(sender, message)
            case _:
                assert_never(message)

    def append(self, *commands: bytes) -> None:
        """Append commands to the log of this node, which leads. They count once they are committed, if ever.

        Raises OSError, and leads no longer: another voter may have the resources that it lacks.
        """
        assert self.is_leader, "only a leader decides what comes next"
        start = self.log.end + 1
        try:
            self.log.extend(tuple((command, start + at, self.term) for at, command in enumerate(commands)))
        except OSError:
            self.resign()
            self.stop_leading()
            raise
        self.replicate()

    def flushed(self) -> None:
        """Continue after a flush: commit as the leader, or confirm as a follower."""
        if self.is_leader:
            self._commit()
        else:
            self.confirm()

    def installed(self, index: int, term: int, voters: Voters) -> None:
        self._applying = None
        super().installed(index, term, voters)

    def resign(self) -> None:
        """If this node leads, make the follower with the highest log end stand for election immediately."""
        if self.is_leader and self.others:
            successor = max(self.others, key=lambda other: self._progress[other].counted)
            for other in self.others:
                self._host.send(other, Resign(self.term, successor))

    def became_leader(self) -> None:
        # A candidate that waits long for votes asks for pre-votes again.
        self.stand_no_more()
        receivers = {*self.others, *self._connected}
        self._progress = {receiver: Progress(next_index=self.log.end) for receiver in sorted(receivers)}
        self._progress_term = self.term
        self._barriers.clear()
        self.replicate()

    def connected(self, peer: BrokerId) -> None:
        """Start anew with a peer: messages in flight are lost, and the peer may have become an amnesiac."""
        self.peer_connected(peer)
        self._connected.add(peer)
        self._barriers.pop(peer, None)
        if self.is_leader:
            self._progress[peer] = Progress(next_index=self.log.end + 1)
            self._send_to(peer)

    def disconnected(self, peer: BrokerId) -> None:
        self.peer_disconnected(peer)
        self._connected.discard(peer)
        if peer == self.leader:
            self.leader_hung_up()
        self._barriers.pop(peer, None)
        self._forget_progress()

    def replicate(self) -> None:
        if self._progress_term == self.term:
            for receiver in tuple(self._progress):
                self._send_to(receiver)

    def apply_committed(self) -> bool:
        """Apply the next step of the committed entries. The voter ticks again until all are applied."""
        if self.commit_index <= self.applied_index:
            return False
        if self._applying is None:
            rows = self.log.between(self.applied_index, self.commit_index, APPLIED_BYTES_PER_STEP)
            self._applying = self._host.apply(rows), rows[-1][1]
        steps, end = self._applying
        if run_step(steps):
            self._applying, self.applied_index = None, end
            self.log.voter_log.committed(end)
        return True

    def _send_to(self, follower: BrokerId) -> None:
        """Send a follower all entries not yet sent; at least a heartbeat, which has the commit index."""
        progress = self._progress[follower]
        while True:
            if progress.prev_index < self.log.base_index:
                self._send_image(follower, progress)
                return
            entries: tuple[Row, ...] = ()
            if not progress.is_probing:
                entries = self.log.between(progress.prev_index, self.log.end, APPEND_BYTES_MAX)
            prev_term = self.log.term_at(progress.prev_index)
            assert prev_term is not None, "entries are sent after one of ours"
            message = Append(self.term, progress.prev_index, prev_term, self.commit_index, entries)
            if not self._host.send(follower, message) or not entries:
                return
            progress.sent(entries[-1][1])
            if progress.prev_index == self.log.end:
                return

    def _send_image(self, follower: BrokerId, progress: Progress) -> None:
        now_s = self._host.now_s()
        if progress.image_sent_at_s is None or now_s - progress.image_sent_at_s > IMAGE_TIMEOUT_S:
            image = self._host.packed_image()
            if image is not None and self._host.send(follower, image):
                progress.sent_image(image.index, now_s)

    def _on_append_reply(self, sender: BrokerId, reply: AppendReply) -> None:
        if reply.term > self.term:
            self.step_down(reply.term)
        if not self.is_leader or reply.term != self.term:
            return
        progress = self._progress.get(sender)
        if progress is None:
            return
        if reply.end > self.log.end:
            raise MalformedMessage(f"the reply confirms entry {reply.end}, but the log ends at {self.log.end}")
        progress.counts = reply.may_vote
        if reply.may_vote and sender in self.others:
            self.heard_from_follower(sender)
        if reply.rejected is not None:
            if progress.rejected(reply.rejected, reply.end):
                self._send_to(sender)
            return
        progress.confirmed(reply.end)
        if progress.prev_index < self.log.end:
            self._send_to(sender)
        self._commit()
        if reply.may_vote:
            self._barriers.pop(sender, None)
        else:
            self._readmit(sender, reply.end)

    def _readmit(self, amnesiac: BrokerId, stored: int) -> None:
        """Readmit an amnesiac once it has a barrier entry that a majority of the others committed after its return."""
        if amnesiac not in self._barriers:
            self.append(NO_OP)
            self._barriers[amnesiac] = self.log.end
        elif min(stored, self.commit_index) >= self._barriers[amnesiac]:
            self._host.send(amnesiac, Readmit(self.term, self._barriers[amnesiac]))

    def _commit(self) -> None:
        """Commit the entries that a majority has on disk.

        Entries of earlier terms are committed only together with an entry of this term (Raft, section 5.4.2).
        """
        ends = [self._progress[other].counted for other in self.others]
        if self.is_voter:
            ends += [self.log.flushed_end]
        index = majority_has(ends)
        if index > self.commit_index and self.log.term_at(index) == self.term:
            self.commit_index = index

    def _forget_progress(self) -> None:
        """Drop the progress of peers that are neither voters nor connected."""
        for gone in set(self._progress) - {*self.others, *self._connected}:
            del self._progress[gone]
