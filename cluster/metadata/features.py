"""Feature levels of the cluster (KIP-584): what every broker must understand before one of them may write it.

`metadata.version` numbers the formats of the metadata log. Level 1 is that of release 0.1: commands 1 to 27. A command
of a later level is proposed only once that level is finalized, because an older broker cannot read it. Level 3 has
configs of groups, uploads that a leader abandons (GiveUpUploads), a leader epoch that begins with each removal of a
replica, and eligible leader replicas that stay where a change of min.insync.replicas permits it.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

METADATA_VERSION = "metadata.version"

FIRST_LEVEL = 1
"""The level of a cluster whose metadata has no level: it was founded by release 0.1."""

NEWEST_LEVEL = 3
"""The level at which this version founds a cluster, and the highest to which it can be upgraded."""

LEVEL_MAX = (1 << 15) - 1
"""The highest level that Kafka's protocol can express."""


class Levels(NamedTuple):
    """The range of metadata.version that a broker's release supports."""

    oldest: int
    newest: int

    def why_not(self, broker_id: int, level: int) -> str | None:
        """Return a sentence why a broker with these levels cannot be in a cluster at `level`; None if it can."""
        if self.oldest <= level <= self.newest:
            return None
        return (
            f"broker {broker_id} supports metadata.version {self}, and the cluster has finalized {level}: install the"
            " release of the other brokers on it"
        )

    def __str__(self) -> str:
        return f"{self.oldest}-{self.newest}" if self.oldest < self.newest else str(self.oldest)


OF_FIRST_RELEASE = Levels(FIRST_LEVEL, FIRST_LEVEL)
"""The levels of release 0.1, which does not announce them."""

SUPPORTED = Levels(FIRST_LEVEL, NEWEST_LEVEL)
"""The levels of this release."""


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Finalize feature levels. `brokers` has the id and epoch of each registered broker, all of which support them.

    The command is refused if any broker has registered since they were asked: that broker may run another release.
    """

    KIND: ClassVar[int] = 28
    LEVEL: ClassVar[int] = FIRST_LEVEL
    updates: tuple[tuple[str, int], ...]
    brokers: tuple[tuple[int, int], ...]
