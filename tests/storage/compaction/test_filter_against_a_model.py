"""Rounds of the log cleaner over random histories, against a model: transactions, tombstones, clocks, full maps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from requirements import Requirement, needs

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Compression, check
from cordwood.storage.compaction.filter import BatchFilter
from cordwood.storage.compaction.offset_map import IS_NATIVE, SEED_BYTES, OffsetMap, OffsetMapBuilder
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.records import Header, Record, decode, encode
from cordwood.storage.types import ProducerIdAndEpoch

NOW_MS, RETENTION_MS = 1_700_000_000_000, 1000
EPOCH = 3
each_form = pytest.mark.parametrize(
    "is_native",
    [
        pytest.param(False, id="python"),
        pytest.param(
            True, id="native", marks=needs(Requirement.CC, IS_NATIVE, "record_filter.c has not been compiled")
        ),
    ],
)


class Produce(NamedTuple):
    """A batch of a producer; in a transaction of its own if there is none, or not transactional (producer -1)."""

    producer: int
    records: list[tuple[bytes | None, bytes | None, int, tuple[Header, ...]]]
    codec: Compression
    is_append_time: bool


class End(NamedTuple):
    """A marker of a producer, whether or not it has a transaction."""

    producer: int
    is_commit: bool


class Round(NamedTuple):
    """A round of the cleaner up to a share of the log, after some time."""

    share: float
    bytes_max: int
    waited_ms: int
    batches_a_call: int
    needs_last: bool


@dataclass
class Kept:
    """A batch of the model."""

    base: int
    end: int
    records: list[Record]
    transaction: int | None = None
    is_marker: bool = False
    horizon: int | None = None


@dataclass
class Model:
    """What the log has to have after each round, by offsets and transactions that are known from the outset."""

    batches: list[Kept] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)

    def clean(self, start: int, end: int, now_ms: int, needed: set[int]) -> None:
        last = {
            record.key: record.offset
            for batch in self.batches
            if batch.transaction not in self.aborted and not batch.is_marker
            for record in batch.records
            if start <= record.offset < end
        }
        with_data = {batch.transaction for batch in self.batches if not batch.is_marker}
        self.batches = [batch for batch in self.batches if self._stays(batch, end, now_ms, needed, last, with_data)]

    def _stays(
        self,
        batch: Kept,
        end: int,
        now_ms: int,
        needed: set[int],
        last: dict[bytes | None, int],
        with_data: set[int | None],
    ) -> bool:
        is_needed, is_over = batch.end - 1 in needed, batch.horizon is not None and batch.horizon <= now_ms
        if batch.base >= end:
            return True
        if batch.is_marker:
            if batch.transaction not in with_data:
                batch.horizon = batch.horizon or now_ms + RETENTION_MS
                return is_needed or not is_over
            return True
        if batch.transaction in self.aborted:
            batch.records = []
            return is_needed
        batch.records = [record for record in batch.records if record.offset >= end or _lives(record, last, is_over)]
        if batch.end <= end and any(record.value is None for record in batch.records):
            batch.horizon = batch.horizon or now_ms + RETENTION_MS
        return bool(batch.records) or is_needed


def _lives(record: Record, last: dict[bytes | None, int], is_over: bool) -> bool:
    is_last = record.key is not None and record.offset >= last.get(record.key, -1)
    return is_last and not (record.value is None and is_over)


@dataclass
class History:
    """A log as bytes of batches, and the model beside it."""

    is_native: bool
    log: list[bytes] = field(default_factory=list)
    rows: list[AbortedRow] = field(default_factory=list)
    model: Model = field(default_factory=Model)
    last: dict[bytes, Record] = field(default_factory=dict)
    """Last record of each key among all that are committed, whatever was removed since."""
    ongoing: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First offset and number of each producer's transaction."""
    unseen: dict[int, list[Record]] = field(default_factory=dict)
    log_end: int = 0
    clean_end: int = 0
    transactions: int = 0
    now_ms: int = NOW_MS
    last_of: dict[int, int] = field(default_factory=dict)

    def run(self, step: Produce | End | Round) -> None:
        match step:
            case Produce():
                self._produce(step)
            case End():
                self._end(step)
            case Round():
                self._clean(step)

    def _produce(self, step: Produce) -> None:
        base, is_transactional = self.log_end, step.producer >= 0
        records = [
            Record(base + delta, self.now_ms + time, key, value, headers)
            for delta, (key, value, time, headers) in enumerate(step.records)
        ]
        append_time = LOG_APPEND_TIME if step.is_append_time else 0
        batch = encode(
            records,
            base_offset=base,
            leader_epoch=5,
            producer_id=step.producer,
            producer_epoch=EPOCH,
            base_sequence=base,
            compression=step.codec,
            attributes=append_time | (TRANSACTIONAL if is_transactional else 0),
        )
        kept = Kept(base, base + len(records), decode(batch))
        if is_transactional:
            if step.producer not in self.ongoing:
                self.transactions += 1
                self.ongoing[step.producer] = base, self.transactions
            kept.transaction = self.ongoing[step.producer][1]
            self.unseen.setdefault(step.producer, []).extend(records)
            self.last_of[step.producer] = kept.end - 1
        else:
            self._committed(records)
        self._append(batch, kept)

    def _end(self, step: End) -> None:
        producer, marker = ProducerIdAndEpoch(step.producer, EPOCH), EndTransactionMarker(step.is_commit, 7)
        batch = bytearray(encode_marker(producer, marker, self.now_ms))
        batch[:8] = self.log_end.to_bytes(8, "big")
        self.transactions += 1
        first, transaction = self.ongoing.pop(step.producer, (None, self.transactions))
        records = self.unseen.pop(step.producer, [])
        if step.is_commit:
            self._committed(records)
        elif first is not None:
            self.model.aborted.add(transaction)
            lso = min((begin for begin, _ in self.ongoing.values()), default=self.log_end + 1)
            self.rows.append(AbortedRow(step.producer, first, self.log_end, lso))
        content = decode(bytes(batch))
        self._append(bytes(batch), Kept(self.log_end, self.log_end + 1, content, transaction, is_marker=True))

    def _append(self, batch: bytes, kept: Kept) -> None:
        self.log.append(batch)
        self.model.batches.append(kept)
        self.log_end = kept.end

    def _committed(self, records: list[Record]) -> None:
        for record in records:
            if record.key is not None and record.offset >= self.last.get(record.key, record).offset:
                self.last[record.key] = record

    def _clean(self, step: Round) -> None:
        self.now_ms += step.waited_ms
        stable = min((first for first, _ in self.ongoing.values()), default=self.log_end)
        limit = self.clean_end + int(step.share * (stable - self.clean_end))
        limit = next((check(batch).end for batch in reversed(self.log) if check(batch).end <= limit), self.clean_end)
        limit = max(limit, self.clean_end)
        offsets = OffsetMap(
            step.bytes_max, self.clean_end, max(limit, self.clean_end + 1), bytes(SEED_BYTES), is_native=self.is_native
        )
        builder = OffsetMapBuilder(offsets)
        for data in self._calls(step.batches_a_call, limit):
            builder.expect(self.rows)
            if not builder.add(data):
                assert offsets.is_full
                break
        end, needed = offsets.end, set(self.last_of.values()) if step.needs_last else set()
        assert end <= limit
        assert len(offsets) * 16 <= step.bytes_max
        assert offsets.is_full or end >= limit or not self.log
        batch_filter = BatchFilter(
            offsets, end=end, now_ms=self.now_ms, delete_retention_ms=RETENTION_MS, needed=needed
        )
        left: list[bytes] = []
        for data in self._calls(step.batches_a_call, self.log_end):
            batch_filter.expect(self.rows)
            filtered = batch_filter.filter(data)
            while filtered:
                size = check(filtered).size
                left.append(filtered[:size])
                filtered = filtered[size:]
        self.model.clean(self.clean_end, end, self.now_ms, needed | {end - 1})
        self._compare(left)
        self.log, self.rows, self.clean_end = left, batch_filter.take_aborted(), end
        assert batch_filter.records_kept == sum(
            len(batch.records) for batch in self.model.batches if not batch.is_marker
        )
        self._check_what_a_consumer_sees()

    def _calls(self, count: int, limit: int) -> Iterator[bytes]:
        batches = [batch for batch in self.log if check(batch).end <= limit]
        for first in range(0, len(batches), count):
            yield b"".join(batches[first : first + count])

    def _compare(self, left: list[bytes]) -> None:
        assert [check(batch)[0] for batch in left] == [batch.base for batch in self.model.batches]
        for batch, expected in zip(left, self.model.batches, strict=True):
            header = check(batch)
            assert (header.end, header.record_count) == (expected.end, len(expected.records))
            assert decode(batch) == expected.records
            assert (header.leader_epoch, header.is_control) == (0 if expected.is_marker else 5, expected.is_marker)
            if expected.horizon is None:
                assert not header.attributes & DELETE_HORIZON
            elif expected.records:
                assert header.attributes & DELETE_HORIZON
                assert header.base_timestamp == expected.horizon
            if expected.records:
                assert header.max_timestamp == max(record.timestamp for record in expected.records)
            if not expected.is_marker:
                assert header.base_sequence == header.base_offset

    def _check_what_a_consumer_sees(self) -> None:
        """A consumer of committed records finds the last value of each key; an ongoing transaction is not yet seen."""
        committed: list[Record] = []
        open_ones: dict[int, list[Record]] = {}
        for batch in self.log:
            header = check(batch)
            if header.attributes & CONTROL:
                committed += open_ones.pop(header.producer_id, [])
            elif any(
                row.producer_id == header.producer_id and row.first_offset <= header.base_offset < row.marker_offset
                for row in self.rows
            ):
                continue
            elif header.is_transactional:
                open_ones.setdefault(header.producer_id, []).extend(decode(batch))
            else:
                committed += decode(batch)
        assert set(open_ones) <= set(self.ongoing)
        committed.sort(key=lambda record: record.offset)
        seen = {record.key: record.value for record in committed if record.key is not None}
        assert _live(seen) == _live({key: record.value for key, record in self.last.items()})


def _live(values: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    """Return the values without tombstones: whether those are still there depends on the time."""
    return {key: value for key, value in values.items() if value is not None}


keys = st.sampled_from([b"", b"a", b"key-7ch", b"8-chars.", b"a key of seventeen", b"k" * 40, b"b", None])
values = st.none() | st.binary(max_size=12)
some_headers = st.just(()) | st.just((("h", b"v"), ("n", None)))
records = st.lists(st.tuples(keys, values, st.integers(-70, 70), some_headers), min_size=1, max_size=6)
produce = st.builds(Produce, st.integers(-1, 2), records, st.sampled_from(Compression), st.booleans())
end = st.builds(End, st.integers(0, 2), st.booleans())
a_round = st.builds(
    Round,
    st.sampled_from([1.0, 1.0, 0.5]),
    st.sampled_from([1 << 20, 1 << 20, 160, 400]),
    st.sampled_from([0, 400, 1000]),
    st.integers(1, 4),
    st.booleans(),
)
histories = st.lists(produce | produce | end | a_round, min_size=12, max_size=40)


@each_form
@settings(deadline=None, max_examples=30)
@given(histories)
def test_rounds_leave_what_the_model_leaves(is_native: bool, steps: list[Produce | End | Round]) -> None:
    history = History(is_native)
    for step in [*steps, Round(1.0, 1 << 20, 0, 3, True), Round(1.0, 1 << 20, 1000, 3, True)]:
        history.run(step)
