"""States of the records of a share partition, and runs of records that have one state.

| state | number | meaning | next state |
|---|---|---|---|
| Available | 0 | may be acquired | Acquired; Archived if the log no longer has the record |
| Acquired | 1 | locked by one member until a deadline | Acknowledged, Available, Archiving or Archived |
| Acknowledged | 2 | done: accepted by a member | none |
| Archiving | 3 | undeliverable: it is being copied to the dead-letter queue (KIP-1191) | Archived |
| Archived | 4 | done: rejected, undeliverable, or nothing to deliver | none |

The numbers are Kafka's, on the wire and in `__share_group_state`. Acquired is never stored: locks end with the leader.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

UUID_BYTES = 16


class RecordState(IntEnum):
    """The state of a record of a share partition."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


FINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""States of records that are done. The start offset moves over them."""
STORED = frozenset(RecordState) - {RecordState.ACQUIRED}


class AcknowledgementType(IntEnum):
    """The acknowledgement type of an acquired record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class SharePartitionKey(NamedTuple):
    """One partition of a topic, as one share group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """Return the key by which clients find the share coordinator, with Kafka's text of the topic id."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Records from `start` up to `end`, half-open, in one state, each delivered `delivery_count` times."""

    start: int
    end: int
    state: RecordState
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """The acknowledgement of the records from `start` up to `end`: one type for all of them, or one for each."""

    start: int
    end: int
    types: tuple[int, ...]


class AcquiredBatch(NamedTuple):
    """Records from `start` up to `end` that a member has acquired, with the deliveries of each, this one included."""

    start: int
    end: int
    delivery_count: int


def append_joined(batches: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch to ordered ones; a neighbour of the same state and delivery count becomes one with it."""
    if batches and batches[-1].end == batch.start and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(end=batch.end)
    else:
        batches.append(batch)


def parse_key(text: str) -> SharePartitionKey:
    """Return the share partition that `str` of a key names; the group id may have colons. Raises ValueError."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].isdecimal() or not parts[2].isascii():
        raise ValueError(f"{text!r} does not name a share partition")
    group_id, topic_id, partition = parts
    raw = urlsafe_b64decode(topic_id + "==")
    if len(raw) != UUID_BYTES:
        raise ValueError(f"{text!r} does not name a share partition")
    return SharePartitionKey(group_id, UUID(bytes=raw), int(partition))
