"""Entries applied lately, by their tags: one that arrives again is known, and one that is too old is refused.

A proposer names the entry after which it proposed. An entry is taken within WINDOW entries of that one, and its tag is
remembered for as long: so the first arrival is remembered whenever a second one is still within its window.
"""

from collections.abc import Iterator
from dataclasses import dataclass

WINDOW = 16_384
"""Entries. More than all brokers together have under way, and 1 to 2 MB of memory."""
CHUNK = 256
"""Entries whose tags are one set: an image shares all sets but the newest with the image before."""


@dataclass(frozen=True, slots=True)
class RecentEntries:
    """The tags of the entries of the last WINDOW indexes, and of a few before them."""

    chunks: tuple[tuple[int, frozenset[bytes]], ...] = ()
    """Each with its number: an index divided by CHUNK. In order."""

    def __contains__(self, tag: bytes) -> bool:
        return any(tag in tags for _, tags in self.chunks)

    def __iter__(self) -> Iterator[bytes]:
        return (tag for _, tags in self.chunks for tag in tags)

    def having(self, tag: bytes, index: int) -> "RecentEntries":
        """With the entry at `index`, which is behind all that were noted."""
        number = index // CHUNK
        kept = [chunk for chunk in self.chunks if chunk[0] >= number - WINDOW // CHUNK]
        newest = frozenset((tag,))
        if kept and kept[-1][0] == number:
            newest |= kept.pop()[1]
        return RecentEntries((*kept, (number, newest)))


def is_late(after: int, index: int) -> bool:
    """Whether an entry that was proposed after entry `after` may have been here, and be forgotten, at `index`."""
    return not after < index <= after + WINDOW
