"""Decoding of acquired records: the records of a ShareFetch response that the member has locked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cordwood.cluster.http.bodies import Streams
from cordwood.cluster.http.records.portions import Portion, Portions, next_portion, next_usual
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record


class Acquired(NamedTuple):
    """A range of locked offsets, half-open, and how often its records have been delivered."""

    offsets: range
    delivery_count: int


class AcquiredRecord(NamedTuple):
    """A locked record. `record` is None if it cannot be decoded, for the given `reason`."""

    offset: int
    delivery_count: int
    record: Record | None
    reason: str | None = None

    @property
    def content_bytes(self) -> int:
        """Bytes of key and value."""
        return 0 if self.record is None else len(self.record.key or b"") + len(self.record.value or b"")


class Decoded(NamedTuple):
    """Locked records of one partition, and locked offsets that have no record."""

    records: Sequence[AcquiredRecord]
    gaps: Sequence[range]


def acquired_in(row: Any) -> list[Acquired]:
    """Return the locked ranges of a partition's row in a response, by offset. Raises Malformed."""
    found = sorted(
        (
            Acquired(range(batch.first_offset, batch.last_offset + 1), batch.delivery_count)
            for batch in row.acquired_records
        ),
        key=lambda acquired: acquired.offsets.start,
    )
    end = 0
    for acquired in found:
        if acquired.offsets.start < end or not acquired.offsets:
            raise Malformed("acquired records that overlap")
        end = acquired.offsets.stop
    return found


class AcquiredBatches:
    """The locked records of one partition, decoded a portion at a time: compressed batches may hold a thousandfold.

    An offset without a record is a gap: a marker, or a record that the log cleaner has removed.
    """

    def __init__(self, batches: bytes, acquired: Sequence[Acquired]) -> None:
        """`acquired` is not empty."""
        self._left, self._end = _Offsets(acquired), acquired[-1].offsets.stop
        self._start = acquired[0].offsets.start
        self._portions = Portions(batches, range(self._start, self._end), None)

    @property
    def is_over(self) -> bool:
        return self._left.is_empty

    async def next(self, decoding: DecodeQueue, streams: Streams) -> Decoded:
        """Decode the next portion. Raises Malformed.

        Portions beyond a light one are decoded in the decode queue, as the records API does, and large records one at
        a time.
        """
        records: list[AcquiredRecord] = []
        gaps: list[range] = []
        if not self._portions.is_over:
            portion = await _next(self._portions, decoding, streams)
            for record in portion.records:
                assert isinstance(record, Record), "markers are left out"
                gaps += [skipped.offsets for skipped in self._left.below(record.offset)]
                count = self._left.take(record.offset)
                if count is not None:
                    records.append(AcquiredRecord(record.offset, count, record))
            if portion.damage is not None:
                gaps += [skipped.offsets for skipped in self._left.below(self._start)]
                records += [
                    AcquiredRecord(offset, locked.delivery_count, None, portion.damage)
                    for locked in self._left.below(portion.end)
                    for offset in locked.offsets
                ]
            self._start = portion.end
        if self._portions.is_over:
            gaps += self.take_rest()
        return Decoded(records, gaps)

    def take_rest(self) -> list[range]:
        """Return the locked offsets that are not decoded, and end here."""
        return [skipped.offsets for skipped in self._left.below(self._end)]


async def _next(portions: Portions, decoding: DecodeQueue, streams: Streams) -> Portion:
    """Decode the next portion. Raises Malformed."""
    try:
        portion = await next_usual(portions, decoding)
        if portion is None:
            async with streams.large_record():
                portion = await next_portion(portions, decoding)
    except CorruptBatch as damage:
        raise Malformed(f"a damaged batch: {damage}") from damage
    return portion


class _Offsets:
    """The locked offsets that have not been looked at."""

    def __init__(self, acquired: Sequence[Acquired]) -> None:
        self._left = list(reversed(acquired))

    @property
    def is_empty(self) -> bool:
        return not self._left

    def below(self, offset: int) -> list[Acquired]:
        """Remove and return the offsets below `offset`."""
        found = []
        while self._left and self._left[-1].offsets.start < offset:
            first = self._left.pop()
            found.append(Acquired(range(first.offsets.start, min(first.offsets.stop, offset)), first.delivery_count))
            if first.offsets.stop > offset:
                self._left.append(Acquired(range(offset, first.offsets.stop), first.delivery_count))
        return found

    def take(self, offset: int) -> int | None:
        """Remove the first offset if it is this one. Return its delivery count; None if it is not locked."""
        if not self._left or offset not in self._left[-1].offsets:
            return None
        (taken,) = self.below(offset + 1)
        return taken.delivery_count
