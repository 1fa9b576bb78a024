"""Feature levels of the cluster (KIP-584): what every broker must understand before anybody may write it.

`metadata.version` numbers the formats of the metadata log. Level 1 is that of release 0.1: commands 1 to 27. A command
of a later level is proposed only once that level is finalized, because an older broker cannot read it.
"""

from dataclasses import dataclass
from typing import ClassVar

METADATA_VERSION = "metadata.version"

FIRST_LEVEL = 1
"""The level of a cluster whose metadata has no level: it was founded by release 0.1."""

NEWEST_LEVEL = 2
"""The level at which this version founds a cluster, and the highest to which it can be upgraded."""


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Finalize feature levels. Expects that every registered broker supports them."""

    KIND: ClassVar[int] = 28
    LEVEL: ClassVar[int] = FIRST_LEVEL
    updates: tuple[tuple[str, int], ...]
