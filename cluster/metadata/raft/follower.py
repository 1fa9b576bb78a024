"""A Raft follower's log: appends, truncation only at a real conflict, and never at or below the commit index."""

from typing import Any

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.election import Elector
from cordwood.cluster.metadata.raft.library import Role
from cordwood.cluster.metadata.raft.messages import (
    Append,
    AppendReply,
    Contradiction,
    Install,
    MalformedMessage,
    Readmit,
)
from cordwood.cluster.metadata.voters import Voters


class Follower(Elector):
    """The follower part of a Raft node. Up to `_agreed`, its log is known to equal that of this term's leader."""

    def __init__(self, *arguments: Any) -> None:
        self._agreed, self._agreed_term = 0, 0
        super().__init__(*arguments)

    def on_append(self, sender: BrokerId, message: Append) -> None:
        if message.term < self.term:
            # The reply's term deposes the leader of the earlier term.
            self._host.send(sender, AppendReply(self.term, 0, self.may_vote))
            return
        self._follow(sender, message.term)
        if message.entries and message.entries[0][1] != message.prev_index + 1:
            raise MalformedMessage(f"entries from {message.entries[0][1]} on after entry {message.prev_index}")
        if not self._fits(message):
            hint = self._may_agree_at(message.prev_index)
            self._host.send(sender, AppendReply(self.term, hint, self.may_vote, message.prev_index))
            return
        self._take(message)
        self._agreed = max(self._agreed, message.prev_index + len(message.entries))
        if (commit_index := min(message.commit_index, self._agreed)) > self.commit_index:
            self.commit_index = commit_index
        self.confirm()

    def confirm(self) -> None:
        """Report to the leader the end of the log that is the leader's and on disk."""
        if self.leader is not None and self.leader != self._me and self._agreed_term == self.term:
            end = min(self._agreed, self.log.flushed_end)
            self._host.send(self.leader, AppendReply(self.term, end, self.may_vote))

    def on_install(self, sender: BrokerId, message: Install) -> None:
        if message.term < self.term:
            self._host.send(sender, AppendReply(self.term, 0, self.may_vote))
            return
        self._follow(sender, message.term)
        if message.index > self.commit_index:
            self._host.install(message)
        else:
            self._agreed = max(self._agreed, message.index)
            self.confirm()

    def installed(self, index: int, term: int, voters: Voters) -> None:
        """Continue after an installed image, which is on disk."""
        assert index > self.commit_index, "an image never takes us back"
        if self.log.term_at(index) == term:
            # Entries after the snapshot may be the leader's; otherwise the leader's appends replace them.
            self.log.drop_before(index, index)
        else:
            self.log.restart_behind(index, term)
        self.log.image_installed(index, voters)
        self.commit_index = self.applied_index = index
        self._agreed = max(self._agreed, index)
        self.confirm()

    def on_readmit(self, sender: BrokerId, message: Readmit) -> None:
        """Become a voter again: the log has every entry that this voter may have confirmed before (docs/adr/0011)."""
        is_current = sender == self.leader and message.term == self.term == self._agreed_term
        if not self.may_vote and is_current and min(self._agreed, self.log.flushed_end) >= message.barrier:
            self._host.readmitted()
            self.confirm()

    def _follow(self, leader: BrokerId, term: int) -> None:
        if term == self.term and self.role is Role.LEADER:
            raise Contradiction(f"broker {leader} sends as the leader of term {term}, which this broker leads")
        self.follow_leader(leader, term)
        if self._agreed_term != term:
            self._agreed, self._agreed_term = self.commit_index, term
        self._leader_heard_at_s = self._host.now_s()
        self.stand_no_more()
        self.put_off_election()

    def _fits(self, message: Append) -> bool:
        """Return whether the log has the entry before the message's first. An entry in a snapshot always fits."""
        known = self.log.term_at(message.prev_index)
        return message.prev_index < self.log.base_index or known == message.prev_term

    def _may_agree_at(self, index: int) -> int:
        """Return an index where the logs may agree: the end, or the entry before the whole term of `index`."""
        if index > self.log.end:
            return self.log.end
        term = self.log.term_at(index)
        while index > self.commit_index and self.log.term_at(index) == term:
            index -= 1
        return index

    def _take(self, message: Append) -> None:
        """Append the entries that are new, and truncate at a conflict. Entries that the log has already are skipped."""
        for position, (_, index, term) in enumerate(message.entries):
            if index <= self.log.base_index:
                continue
            known = self.log.term_at(index)
            if known is None:
                self.log.extend(message.entries[position:])
                return
            if known != term:
                if index <= self.commit_index:
                    raise Contradiction(f"entry {index} is committed, and differs from the one that was sent")
                self.log.truncate_from(index)
                self.log.extend(message.entries[position:])
                return
