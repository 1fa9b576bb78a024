"""Names of partitions, producer ids with their epochs, and offset and leader epoch types of a log."""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Offset of a record in its partition. Ranges are half-open: an `end` is the next offset, never the last."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Count of a partition's leaders. Each batch has the epoch of the leader that appended it (KIP-101)."""

NO_EPOCH = LeaderEpoch(-1)
NO_OFFSET = Offset(-1)
NO_LEADER = -1
"""The broker id in place of the leader of a partition that has none, as in Kafka's requests."""
NEVER_EXPIRES = -1
"""The expiry of an object that is kept until it is dropped."""
NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1


class TopicPartition(NamedTuple):
    """A partition of a topic, by name. Ordered by topic, then by partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    """A producer id, and the epoch that fences earlier producers with that id (KIP-98)."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id} epoch {self.epoch}"
