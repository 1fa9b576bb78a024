"""Terms of a round of the log cleaner, and the result of a pass over uncompressed batches."""

from array import array
from typing import NamedTuple, Protocol

from cordwood.storage.batch import CODEC_MASK, CONTROL, TRANSACTIONAL
from cordwood.storage.disk import Bytes

OTHER_KINDS = CODEC_MASK | TRANSACTIONAL | CONTROL
"""Attributes of batches of which the keys alone do not decide, or cannot be seen."""


class Rules(NamedTuple):
    """Terms of the second pass."""

    end: int
    """Records from this offset on stay."""
    now_ms: int
    horizon_ms: int
    """Time from which on tombstones and markers that this round finds may go."""
    needed: "array[int]"
    """Last offsets of batches that stay even without records, in ascending order, 64 bits each."""


class Sifted(NamedTuple):
    """The retained records of some batches. `position` is that after the last of them."""

    position: int
    content: bytes
    records_read: int
    records_kept: int


class KeyTable(Protocol):
    """Table of last offsets by key, in C or in Python. CorruptBatch is raised for records that are malformed."""

    end: int
    """Offset up to which all records are in the table."""
    keys_max: int

    @property
    def is_full(self) -> bool: ...

    def __len__(self) -> int: ...

    def get(self, key: bytes) -> int | None: ...

    def put(self, data: Bytes, position: int) -> int:
        """Put the keys of some batches from `position` on, none of OTHER_KINDS. Return the position after them."""

    def put_batch(self, batch: Bytes) -> None:
        """Put the keys of one batch, which is not compressed."""

    def sift(self, data: Bytes, position: int, rules: Rules) -> Sifted:
        """Filter some batches from `position` on, none of OTHER_KINDS."""

    def sift_batch(self, batch: Bytes, rules: Rules) -> Sifted:
        """Filter one batch, which is not compressed."""
