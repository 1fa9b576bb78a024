"""Records of one member that HTTP clients hold, each under the secret of its receipt. Pure: times are in ms."""

import hmac
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.operations.queue_receipts import Receipt

DONE_MAX = 10_000
"""The number of acknowledged receipts that are remembered, so that a client may repeat a request without a response."""


class QueuePartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: UUID
    partition: int


class QueueOffset(NamedTuple):
    """A record by its partition and offset."""

    place: QueuePartition
    offset: int


@dataclass(slots=True)
class HttpDelivery:
    """One delivery of a record, from its acquisition until its acknowledgement or the end of its lock."""

    secret: bytes
    leader: int
    """The leader that gave the record: only in the session there is it locked."""


class Deliveries:
    """The deliveries whose locks have not ended."""

    def __init__(self) -> None:
        self._held: dict[QueueOffset, HttpDelivery] = {}
        self._locks: Deadlines[QueueOffset] = Deadlines()
        self._done: OrderedDict[tuple[QueueOffset, bytes], int] = OrderedDict()
        """The types of acknowledgement of the last finished deliveries."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, leader: int, records: Iterable[QueueOffset], secret: bytes, until_ms: int) -> None:
        """Add deliveries under one secret. A record that is delivered again ends its earlier delivery."""
        for record in records:
            self._held[record] = HttpDelivery(secret, leader)
            self._locks.put(record, until_ms)

    def find(self, receipt: Receipt) -> HttpDelivery | None:
        """Return the delivery that a receipt is for; None if its lock has ended, or it is acknowledged."""
        found = self._held.get(record_of(receipt))
        return found if found is not None and hmac.compare_digest(found.secret, receipt.secret) else None

    def was_done(self, receipt: Receipt, acknowledge_type: int) -> bool:
        """Return whether the delivery has been acknowledged with this type already."""
        return self._done.get((record_of(receipt), receipt.secret)) == acknowledge_type

    def finish(self, receipt: Receipt, acknowledge_type: int) -> None:
        """Remove an acknowledged delivery, unless the record has been delivered again meanwhile."""
        if self.find(receipt) is not None:
            self.drop(receipt)
        self._done[record_of(receipt), receipt.secret] = acknowledge_type
        if len(self._done) > DONE_MAX:
            self._done.popitem(last=False)

    def renew(self, receipt: Receipt, until_ms: int) -> None:
        """Let the lock of a delivery end later."""
        if self.find(receipt) is not None:
            self._locks.put(record_of(receipt), until_ms)

    def drop(self, receipt: Receipt) -> None:
        """Remove a delivery whose lock has ended."""
        record = record_of(receipt)
        if self.find(receipt) is not None:
            del self._held[record]
            self._locks.remove(record)

    def expire(self, now_ms: int) -> None:
        """Remove the deliveries whose locks have ended."""
        for record in self._locks.take_due(now_ms):
            del self._held[record]

    def end_session(self, leader: int) -> None:
        """Remove the deliveries of a leader whose session has ended: it has released them."""
        for record in [record for record, delivery in self._held.items() if delivery.leader == leader]:
            del self._held[record]
            self._locks.remove(record)


def record_of(receipt: Receipt) -> QueueOffset:
    """Return the record that a receipt is for."""
    return QueueOffset(QueuePartition(receipt.topic_id, receipt.partition), receipt.offset)
