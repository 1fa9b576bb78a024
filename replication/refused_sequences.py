"""Sequence gaps caused by the partition: batches of idempotent producers that it refused, and that come again.

A producer may have sent later batches before it received the refusal. They must not be appended before the refused
batch (rule 9). They must not get OutOfOrderSequence either: after that error librdkafka raises its producer epoch.
Under the new epoch it sends every batch without a response again, also batches of other partitions, which may have been
appended already. So they are refused with a retriable error as well.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from cordwood.storage.batch import BatchHeader
from cordwood.storage.producers import Producers, is_later

REMEMBERED_S = 10.0
"""A producer that has not sent the batch again by then has given it up, and must get OutOfOrderSequence."""
PRODUCERS_MAX = 1000


class RefusedBatches(NamedTuple):
    """First refused batch of a producer, and the deadline for its retry."""

    epoch: int
    sequence: int
    until_s: float


class HasProducers(Protocol):
    """A log, of which only the producers are used. A truncation replaces them."""

    producers: Producers


class RefusedSequences:
    """Refused batches of one partition, one for each producer."""

    __slots__ = ("_log", "_now", "by_producer")

    def __init__(self, now: Callable[[], float], log: HasProducers) -> None:
        """`now` is the event loop's time in seconds; `log` is the partition's."""
        self._now, self._log = now, log
        self.by_producer: dict[int, RefusedBatches] = {}

    def opened(self, header: BatchHeader) -> None:
        """Record a refused batch that will come again."""
        if header.producer_id < 0 or self.is_before(header):
            return
        if len(self.by_producer) >= PRODUCERS_MAX:
            del self.by_producer[next(iter(self.by_producer))]
        until_s = self._now() + REMEMBERED_S
        self.by_producer[header.producer_id] = RefusedBatches(header.producer_epoch, header.base_sequence, until_s)

    def is_before(self, header: BatchHeader) -> bool:
        """Return whether an earlier batch of the producer was refused, and may still come.

        The batch was appended if the log has it: perhaps another leader appended it, and this replica got it from
        there.
        """
        gap = self.by_producer.get(header.producer_id)
        if gap is None or gap.epoch != header.producer_epoch or gap.until_s < self._now():
            return False
        if not is_later(header.base_sequence, gap.sequence):
            return False
        due = self._log.producers.next_sequence(header.producer_id, gap.epoch)
        return due is None or not is_later(due, gap.sequence)

    def closed(self, header: BatchHeader) -> None:
        """Remove the producer's refused batch: an append shows that it was sent again, or was dropped."""
        self.by_producer.pop(header.producer_id, None)
