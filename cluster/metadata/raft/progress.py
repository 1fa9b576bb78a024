"""What a leader knows of one follower's log: what it has on disk for sure, and what to send next. Pure.

As in etcd's raft: a follower whose log is not known to fit is asked, with one message at a time, where it does; only
then entries are sent, and without waiting for the answers.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """Indexes are of entries, both ends included."""

    next_index: int
    stored: int = 0
    """Up to here the follower has our log on its disk."""
    counts: bool = False
    """Whether it may vote, by its newest answer: what an amnesiac has stored does not count as stored."""
    is_probing: bool = True
    image_sent_at_s: float | None = None
    """When it was sent an image that it has not confirmed."""

    @property
    def prev_index(self) -> int:
        """The entry that the next message starts behind."""
        return self.next_index - 1

    @property
    def counted(self) -> int:
        """Up to which entry this follower counts for a majority."""
        return self.stored if self.counts else 0

    def sent(self, last_index: int) -> None:
        """Entries up to `last_index` are on their way; if they are lost, the follower will reject what comes behind."""
        self.next_index = last_index + 1

    def sent_image(self, index: int, now_s: float) -> None:
        self.next_index = index + 1
        self.is_probing = True
        self.image_sent_at_s = now_s

    def confirmed(self, end: int) -> None:
        """The follower has our log up to `end` on disk."""
        self.stored = max(self.stored, end)
        self.next_index = max(self.next_index, self.stored + 1)
        self.is_probing = False
        if self.prev_index <= self.stored:
            self.image_sent_at_s = None

    def rejected(self, prev_index: int, hint: int) -> bool:
        """The follower has no entry `prev_index` of ours, and names one to try. Whether there is something new to ask.

        Late and repeated rejections, of which there is one for each message that was on the way, change nothing.
        """
        if prev_index <= self.stored or (self.is_probing and prev_index != self.prev_index):
            return False
        self.is_probing = True
        self.next_index = max(self.stored, min(hint, prev_index - 1)) + 1
        return True


def majority_has(ends: list[int]) -> int:
    """The highest entry that more than half of the voters have, given the end of each one's log."""
    return sorted(ends, reverse=True)[len(ends) // 2]
