"""Verification of transactions on a leader: first batches that wait for the transaction coordinator (KIP-890). Pure.

Without it, a batch that arrives after the end of its transaction would begin one that no coordinator ends, and hold the
last stable offset for ever. A guard stands for one transaction on one partition, from the arrival of its first batch
until its first append, or a marker. The coordinator's answer counts only with the guard that asked for it.
"""

from collections import OrderedDict
from dataclasses import dataclass

from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import InvalidTransactionState, OutOfOrderSequence, StaleProducerEpoch
from cordwood.storage.producers import Producers, is_later
from cordwood.storage.types import ProducerIdAndEpoch

PRODUCERS_MAX = 10_000
"""Guards of a partition. Past it the oldest is evicted: its producer sends the batch again."""


class VerificationGuard:
    """One verification of one leader role, by identity."""

    __slots__ = ("is_evicted", "owner")

    def __init__(self, owner: "Verifications") -> None:
        self.owner = owner
        self.is_evicted = False


@dataclass(slots=True)
class _Verification:
    guard: VerificationGuard
    epoch: int
    lowest_sequence: int
    is_v2: bool


class Verifications:
    """Transactions of one leader's log that are being verified, at most one for each producer."""

    __slots__ = ("_by_producer", "_producers")

    def __init__(self, producers: Producers) -> None:
        self._producers = producers
        self._by_producer: OrderedDict[int, _Verification] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of guards."""
        return len(self._by_producer)

    def is_needed(self, header: BatchHeader) -> bool:
        """Return whether the batch may only be appended with a guard: it would begin a transaction here.

        False as well for a batch that is refused or known in any case.
        """
        if not header.is_transactional or self._producers.has_begun(header):
            return False
        try:
            return self._producers.check(header) is None
        except (StaleProducerEpoch, OutOfOrderSequence):
            return False

    def begin(self, header: BatchHeader, *, is_v2: bool) -> VerificationGuard:
        """Return the guard of the producer's transaction. All batches that wait for the same answer have the same one.

        `is_v2`: the producer uses the second protocol, in which each transaction has its own epoch. Raises
        StaleProducerEpoch.
        """
        known = self._by_producer.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            raise StaleProducerEpoch(
                f"producer {header.producer_id} has epoch {known.epoch}, but the batch has {header.producer_epoch}"
            )
        if known is None or header.producer_epoch > known.epoch:
            known = _Verification(VerificationGuard(self), header.producer_epoch, header.base_sequence, is_v2)
            self._by_producer[header.producer_id] = known
            if len(self._by_producer) > PRODUCERS_MAX:
                _, oldest = self._by_producer.popitem(last=False)
                oldest.guard.is_evicted = True
        elif is_later(known.lowest_sequence, header.base_sequence):
            known.lowest_sequence = header.base_sequence
        return known.guard

    def check(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Check a transactional batch that is about to be appended.

        Raises InvalidTransactionState without a valid guard; PartitionRefused if an earlier batch of the transaction
        has to come first, which is sent again after a retriable error, or if the guard was evicted or the leadership
        lost since it was given; and what `Producers.check` raises.
        """
        if self._producers.has_begun(header):
            return
        known = self._by_producer.get(header.producer_id)
        is_current = known is not None and known.epoch == header.producer_epoch
        if known is not None and is_current and is_later(header.base_sequence, known.lowest_sequence):
            raise PartitionRefused(Refusal.FOLLOWS_REFUSED)
        if self._producers.check(header) is not None:
            # A repetition is answered as the first time, also after the end of its transaction.
            return
        if guard is not None and guard.owner is not self:
            raise PartitionRefused(Refusal.NOT_LEADER)
        if guard is not None and guard.is_evicted:
            raise PartitionRefused(Refusal.FOLLOWS_REFUSED)
        if known is None or not is_current or guard is not known.guard:
            raise InvalidTransactionState(
                f"the transaction coordinator has not verified a transaction of producer {header.producer_id}"
            )
        if known.is_v2 and header.base_sequence > 0 and not self._producers.has_batches(header.producer_id):
            raise OutOfOrderSequence(f"producer {header.producer_id} is not known, and must begin at sequence 0")

    def refused(self, producer_id: int, guard: VerificationGuard) -> None:
        """Remove the guard of batches that the coordinator has refused, unless they come again."""
        known = self._by_producer.get(producer_id)
        if known is not None and known.guard is guard:
            del self._by_producer[producer_id]

    def appended(self, producer_id: int) -> None:
        """Remove the guard: the log has a part of the transaction, and later batches need none."""
        self._by_producer.pop(producer_id, None)

    def ended(self, producer: ProducerIdAndEpoch) -> None:
        """Remove the guard after a marker, which ends the transaction that the guard stands for.

        In the second protocol, a marker of the guard's own epoch is that of the transaction before.
        """
        known = self._by_producer.get(producer.producer_id)
        if known is not None and not (known.is_v2 and known.epoch == producer.epoch):
            del self._by_producer[producer.producer_id]
