"""Decoding of fetched batches in portions, no larger than the reader takes next."""

from collections.abc import Sequence
from typing import NamedTuple

from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.storage.batch import CODEC_MASK, BatchHeader, headers, peek
from cordwood.storage.control import read_marker
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import LargeRecord, Record, RecordCursor
from cordwood.storage.types import ProducerIdAndEpoch
from cordwood.storage.visibility import Visibility

RECORDS_MAX = 500
CONTENT_BYTES_MAX = 128 << 10
"""Bytes of keys and values. A portion ends with the record that reaches this limit."""
LOOKED_AT_MAX = 5_000
"""The limit of records decoded per portion if a key filter drops most of them: some 20 ms."""
LIGHT_BYTES_MAX = 16 << 10
USUAL_RECORD_BYTES = 256 << 10
RECORD_BYTES_MAX = 8 << 20
"""The limit of a record over HTTP, where it is in memory several times. Kafka clients can read larger ones."""


class MarkerRecord(NamedTuple):
    """A transaction marker, in the place of a record."""

    offset: int
    timestamp: int
    is_commit: bool
    producer: ProducerIdAndEpoch


class Portion(NamedTuple):
    """Some records, or `damage`: why the next records cannot be decoded. `end` is the next offset to read."""

    records: "Sequence[Record | MarkerRecord]"
    end: int
    damage: str | None = None


class Portions:
    """The fetched batches of one partition, decoded within `offsets`, and only for `key` if it is set.

    `aborted` are the aborted transactions among them, which are left out: producer id and first offset. Transaction
    markers are left out, unless `with_markers`.
    """

    def __init__(
        self,
        batches: bytes,
        offsets: range,
        key: bytes | None,
        records_max: int = RECORDS_MAX,
        aborted: Sequence[tuple[int, int]] = (),
        *,
        with_markers: bool = False,
    ) -> None:
        self._with_markers = with_markers and key is None
        self._visibility = Visibility(aborted)
        self._batches, self._offsets, self._key = batches, offsets, key
        self._records_max = min(records_max, RECORDS_MAX)
        self._place, self._end = 0, offsets.start
        self._cursor: RecordCursor | None = None

    @property
    def is_light(self) -> bool:
        """True if decoding is so fast that it may run on the event loop."""
        return len(self._batches) <= LIGHT_BYTES_MAX and not any(
            header.attributes & CODEC_MASK for header in headers(self._batches)
        )

    @property
    def is_over(self) -> bool:
        return self._cursor is None and (self._place >= len(self._batches) or self._end >= self._offsets.stop)

    def next(self, record_bytes_max: int = RECORD_BYTES_MAX) -> Portion:
        """Return the next portion. Raises CorruptBatch if the fetched bytes are not a sequence of whole batches.

        Raises LargeRecord if the next record is larger than `record_bytes_max`, but within RECORD_BYTES_MAX.
        """
        taken = _Taken(self._records_max)
        while not taken.is_enough and not self.is_over:
            cursor = self._cursor = self._cursor or self._next_batch(taken)
            if cursor is None:
                continue
            cursor.record_bytes_max = record_bytes_max
            try:
                self._read(cursor, taken)
            except CorruptBatch as damage:
                if taken.records:
                    # Return the records before the damage; the next portion begins with the damage.
                    break
                if isinstance(damage, LargeRecord) and record_bytes_max < RECORD_BYTES_MAX:
                    cursor.rest(kept_bytes_max=0)
                    raise
                self._cursor, self._end = None, cursor.end
                return Portion((), self._end, str(damage))
        return Portion(taken.records, self._end)

    def _read(self, cursor: RecordCursor, taken: "_Taken") -> None:
        for record in cursor.records():
            self._end = cursor.next_offset
            if record.offset >= self._offsets.stop:
                self._end = self._offsets.stop
                break
            taken.look_at(record, is_wanted=self._key is None or record.key == self._key)
            if taken.is_enough and cursor.left:
                cursor.rest()
                return
        self._cursor, self._end = None, max(self._end, min(cursor.end, self._offsets.stop))

    def _next_batch(self, taken: "_Taken") -> RecordCursor | None:
        """Return the next batch; None for one without records for a reader: a control batch, or an aborted one."""
        header = peek(self._batches, self._place)
        batch_end = self._place + header.size
        if batch_end <= self._place or batch_end > len(self._batches):
            raise CorruptBatch(f"a batch of {header.size} bytes where {len(self._batches) - self._place} remain")
        batch, self._place = self._batches[self._place : batch_end], batch_end
        if not self._visibility.shows(header, batch):
            if self._with_markers and header.is_control and header.base_offset in self._offsets:
                taken.take_marker(header, batch)
            self._end = max(self._end, min(header.end, self._offsets.stop))
            return None
        return RecordCursor(batch, self._offsets.start)


async def next_usual(portions: Portions, decoding: DecodeQueue) -> Portion | None:
    """Return the next portion; None before a large record, of which one reader at a time has one. Raises CorruptBatch.

    The caller waits for its turn after this has returned: a LargeRecord refers to what has been decoded of the batch.
    """
    try:
        return await next_portion(portions, decoding, USUAL_RECORD_BYTES)
    except LargeRecord:
        return None


async def next_portion(portions: Portions, decoding: DecodeQueue, record_bytes_max: int = RECORD_BYTES_MAX) -> Portion:
    """Return the next portion, decoded in the decode queue unless it is light. Raises as `Portions.next`."""
    if portions.is_light:
        return portions.next(record_bytes_max)
    portion: Portion = await decoding.run(portions.next, record_bytes_max)
    return portion


class _Taken:
    """A portion under construction."""

    def __init__(self, records_max: int) -> None:
        self.records: list[Record | MarkerRecord] = []
        self._records_left, self._bytes_left, self._looks_left = records_max, CONTENT_BYTES_MAX, LOOKED_AT_MAX

    @property
    def is_enough(self) -> bool:
        return self._records_left <= 0 or self._bytes_left <= 0 or self._looks_left <= 0

    def look_at(self, record: Record, *, is_wanted: bool) -> None:
        self._looks_left -= 1
        if is_wanted:
            self.records.append(record)
            self._records_left -= 1
            self._bytes_left -= len(record.key or b"") + len(record.value or b"")

    def take_marker(self, header: BatchHeader, batch: bytes) -> None:
        """Take the marker of a control batch; a control record of another kind is no marker. Raises CorruptBatch."""
        marker = read_marker(batch)
        if marker is not None:
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            self.records.append(MarkerRecord(header.base_offset, header.max_timestamp, marker.is_commit, producer))
            self._records_left -= 1
