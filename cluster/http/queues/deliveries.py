"""Records of one member that HTTP clients hold, each under the secret of its receipt. Pure: times are in ms."""

import hmac
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.operations.queue_receipts import Receipt

DONE_MAX = 4_000
"""The number of acknowledged receipts that a member remembers, so that a client may repeat a request without a
response: four of the largest requests, in 0.7 MB.
"""
SWEPT_AT_ONCE = 200
"""Deliveries that are removed in one step: some 0.5 ms."""


class QueuePartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: UUID
    partition: int


class QueueOffset(NamedTuple):
    """A record by its partition and offset."""

    place: QueuePartition
    offset: int


class HttpDelivery(NamedTuple):
    """One delivery of a record, from its acquisition until its acknowledgement or the end of its lock."""

    secret: bytes
    leader: int
    """The leader that gave the record: only in the session there is it locked."""


class _Held:
    """The deliveries of one partition, by offset. They are all of one leader."""

    __slots__ = ("by_offset", "leader")

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.by_offset: dict[int, HttpDelivery] = {}


class Deliveries:
    """The deliveries whose locks have not ended.

    Very many locks may end together: they do not count any more at once, and `sweep` removes them in steps.
    """

    def __init__(self) -> None:
        self._held: dict[QueuePartition, _Held] = {}
        self._count = 0
        self._locks: Deadlines[QueueOffset] = Deadlines()
        self._ended: list[tuple[QueuePartition, dict[int, HttpDelivery]]] = []
        """Deliveries that have ended with their session, and still have deadlines."""
        self._done: OrderedDict[bytes, int] = OrderedDict()
        """The types of acknowledgement of the last finished deliveries."""
        self._done_max = DONE_MAX

    def __len__(self) -> int:
        return self._count

    def add(self, leader: int, records: Iterable[QueueOffset], secret: bytes, until_ms: int) -> None:
        """Add deliveries under one secret. A record that is delivered again ends its earlier delivery.

        Deliveries of a former leader of the partition end too: it has released them.
        """
        delivery = HttpDelivery(secret, leader)
        for record in records:
            held = self._held.get(record.place)
            if held is not None and held.leader != leader:
                self._end(record.place)
                held = None
            if held is None:
                held = self._held[record.place] = _Held(leader)
            self._count += record.offset not in held.by_offset
            held.by_offset[record.offset] = delivery
            self._locks.put(record, until_ms)

    def find(self, receipt: Receipt, now_ms: int) -> HttpDelivery | None:
        """Return the delivery that a receipt is for; None if its lock has ended, or it is acknowledged."""
        record = record_of(receipt)
        held = self._held.get(record.place)
        found = None if held is None else held.by_offset.get(record.offset)
        if found is None or not hmac.compare_digest(found.secret, receipt.secret):
            return None
        until_ms = self._locks.at(record)
        assert until_ms is not None, "each delivery has a deadline"
        return found if until_ms > now_ms else None

    def was_done(self, receipt: Receipt, acknowledge_type: int) -> bool:
        """Return whether the delivery has been acknowledged with this type already."""
        return self._done.get(receipt.packed) == acknowledge_type

    def finish(self, receipt: Receipt, acknowledge_type: int) -> None:
        """Remove an acknowledged delivery, unless the record has been delivered again meanwhile."""
        self.drop(receipt)
        self._done[receipt.packed] = acknowledge_type
        if len(self._done) > self._done_max:
            self._done.popitem(last=False)

    def remember(self, done_max: int) -> None:
        """Remember at most so many finished deliveries from now on, and never more than DONE_MAX."""
        self._done_max = min(done_max, DONE_MAX)
        while len(self._done) > self._done_max:
            self._done.popitem(last=False)

    def renew(self, receipt: Receipt, now_ms: int, until_ms: int) -> None:
        """Let the lock of a delivery end later."""
        if self.find(receipt, now_ms) is not None:
            self._locks.put(record_of(receipt), until_ms)

    def drop(self, receipt: Receipt) -> None:
        """Remove a delivery whose lock has ended."""
        record = record_of(receipt)
        held = self._held.get(record.place)
        found = None if held is None else held.by_offset.get(record.offset)
        if found is not None and hmac.compare_digest(found.secret, receipt.secret):
            self._locks.remove(record)
            self._forget(record)

    def sweep(self, now_ms: int) -> bool:
        """Remove some deliveries whose locks have ended. Return whether there are more."""
        left = SWEPT_AT_ONCE
        while self._ended and left:
            place, by_offset = self._ended[-1]
            held = self._held.get(place)
            while by_offset and left:
                offset, _ = by_offset.popitem()
                left -= 1
                if held is None or offset not in held.by_offset:
                    self._locks.remove(QueueOffset(place, offset))
            if not by_offset:
                self._ended.pop()
        due = self._locks.take_due(now_ms)
        while left and (record := next(due, None)) is not None:
            left -= 1
            self._forget(record)
        return not left

    def end_session(self, leader: int) -> None:
        """End the deliveries of a leader whose session has ended: it has released them."""
        for place in [place for place, held in self._held.items() if held.leader == leader]:
            self._end(place)

    def _end(self, place: QueuePartition) -> None:
        by_offset = self._held.pop(place).by_offset
        self._count -= len(by_offset)
        self._ended.append((place, by_offset))

    def _forget(self, record: QueueOffset) -> None:
        held = self._held.get(record.place)
        # It may have ended with its session.
        if held is not None and held.by_offset.pop(record.offset, None) is not None:
            self._count -= 1
            if not held.by_offset:
                del self._held[record.place]


def record_of(receipt: Receipt) -> QueueOffset:
    """Return the record that a receipt is for."""
    return QueueOffset(QueuePartition(receipt.topic_id, receipt.partition), receipt.offset)
