"""Deduplication of metadata entries by tag: a duplicate is recognized, and an entry that is too old is refused.

A proposer names the last entry that it had applied. An entry is accepted within WINDOW entries of that one, and its tag
is kept for as long: so the tag of the first arrival is known whenever a duplicate is still within its window.
"""

from collections.abc import Iterator
from dataclasses import dataclass

WINDOW = 16_384
"""In entries: more than all brokers together have in flight. The tags take 1 to 2 MB of memory."""
CHUNK = 256
"""Entries whose tags are one set: an image shares all sets but the newest with the previous image."""


@dataclass(frozen=True, slots=True)
class RecentEntries:
    """The tags of the last WINDOW entries, and of a few before them."""

    chunks: tuple[tuple[int, frozenset[bytes]], ...] = ()
    """Sets of tags, each with its number (index divided by CHUNK), in ascending order."""

    def __contains__(self, tag: bytes) -> bool:
        return any(tag in tags for _, tags in self.chunks)

    def __iter__(self) -> Iterator[bytes]:
        return (tag for _, tags in self.chunks for tag in tags)

    def having(self, tag: bytes, index: int) -> "RecentEntries":
        """Return these tags and that of the entry at `index`, which comes after all others."""
        number = index // CHUNK
        kept = [chunk for chunk in self.chunks if chunk[0] >= number - WINDOW // CHUNK]
        newest = frozenset((tag,))
        if kept and kept[-1][0] == number:
            newest |= kept.pop()[1]
        return RecentEntries((*kept, (number, newest)))


def is_late(after: int, index: int) -> bool:
    """Return whether an entry at `index` that was proposed after `after` is outside its window.

    Its duplicate may have been applied before, and its tag forgotten.
    """
    return not after < index <= after + WINDOW
