"""Gaps that a partition made itself: batches of idempotent producers that it refused a moment ago, and that come again.

What a producer sent behind such a batch, when it knew nothing of the refusal yet, must not get in before it (rule 9),
and is not out of order either: told so, librdkafka gives up its epoch, and sends again under the next one what it has
not been told of, other partitions' batches included, which may be there already. So it is refused in the same way.
"""

from collections.abc import Callable
from typing import NamedTuple

from cordwood.storage.batch import BatchHeader
from cordwood.storage.producers import Producers, is_later

REMEMBERED_S = 10.0
"""A producer that has not come again by then has given the batch up, and has to be told that something is missing."""
PRODUCERS_MAX = 1000


class RefusedBatches(NamedTuple):
    """The first batch that was refused to a producer, and until when it is waited for."""

    epoch: int
    sequence: int
    until_s: float


class RefusedSequences:
    """Those of one partition, one for each producer."""

    __slots__ = ("_now", "_producers", "by_producer")

    def __init__(self, now: Callable[[], float], producers: Callable[[], Producers]) -> None:
        """`now` is the loop's time, in seconds; `producers` are those of the partition's log."""
        self._now, self._producers = now, producers
        self.by_producer: dict[int, RefusedBatches] = {}

    def opened(self, header: BatchHeader) -> None:
        """The batch is refused, and will come again."""
        if header.producer_id < 0 or self.is_before(header):
            return
        if len(self.by_producer) >= PRODUCERS_MAX:
            del self.by_producer[next(iter(self.by_producer))]
        until_s = self._now() + REMEMBERED_S
        self.by_producer[header.producer_id] = RefusedBatches(header.producer_epoch, header.base_sequence, until_s)

    def is_before(self, header: BatchHeader) -> bool:
        """Whether a batch that this one follows was refused, and may still come.

        It has come where the log has it: another leader took it, perhaps, and it was replicated to here.
        """
        gap = self.by_producer.get(header.producer_id)
        if gap is None or gap.epoch != header.producer_epoch or gap.until_s < self._now():
            return False
        if not is_later(header.base_sequence, gap.sequence):
            return False
        due = self._producers().next_sequence(header.producer_id, gap.epoch)
        return due is None or not is_later(due, gap.sequence)

    def closed(self, header: BatchHeader) -> None:
        """The batch is in the log now: whatever was refused before has come, or is given up."""
        self.by_producer.pop(header.producer_id, None)
