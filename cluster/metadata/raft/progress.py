"""A Raft leader's progress of one follower: the log end on its disk, and the next entry to send. Pure.

As in etcd's raft: while the leader does not know where the logs agree, it probes with one message at a time. Afterwards
entries are pipelined, without waiting for the replies.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """The progress of one follower. Indexes are inclusive."""

    next_index: int
    stored: int = 0
    """The last entry of the leader's log that is on the follower's disk."""
    counts: bool = False
    """True if the follower may vote, by its newest reply. An amnesiac's entries do not count for a majority."""
    is_probing: bool = True
    image_sent_at_s: float | None = None
    """The time when an image was sent that is not yet confirmed."""

    @property
    def prev_index(self) -> int:
        """The entry before the next one to send."""
        return self.next_index - 1

    @property
    def counted(self) -> int:
        """The last entry for which this follower counts for a majority."""
        return self.stored if self.counts else 0

    def sent(self, last_index: int) -> None:
        """Record that entries up to `last_index` are in flight. If they are lost, the follower rejects later ones."""
        self.next_index = last_index + 1

    def sent_image(self, index: int, now_s: float) -> None:
        self.next_index = index + 1
        self.is_probing = True
        self.image_sent_at_s = now_s

    def confirmed(self, end: int) -> None:
        """Record that the follower has the leader's log up to `end` on disk."""
        self.stored = max(self.stored, end)
        self.next_index = max(self.next_index, self.stored + 1)
        self.is_probing = False
        if self.prev_index <= self.stored:
            self.image_sent_at_s = None

    def rejected(self, prev_index: int, hint: int) -> bool:
        """Record that the follower has no entry `prev_index` of this log. Return whether to probe at a new index.

        `hint` is the index that the follower suggests. Late and repeated rejections, one for each message in flight,
        change nothing.
        """
        if prev_index <= self.stored or (self.is_probing and prev_index != self.prev_index):
            return False
        self.is_probing = True
        self.next_index = max(self.stored, min(hint, prev_index - 1)) + 1
        return True


def majority_has(ends: list[int]) -> int:
    """Return the highest entry that more than half of the voters have, given the log end of each."""
    return sorted(ends, reverse=True)[len(ends) // 2]
