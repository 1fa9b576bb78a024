"""Results of the batch filter for single batches: bytes, codecs, empty batches, delete horizons, producers' batches."""

import pytest

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
    check,
    headers,
)
from cordwood.storage.compaction.filter import BatchFilter, needed_offsets
from cordwood.storage.compaction.offset_map import SEED_BYTES, OffsetMap, OffsetMapBuilder
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.producers import Producers
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.types import ProducerIdAndEpoch

NOW_MS = 1_700_000_000_000


def batch_of(
    base: int, *keys: bytes, value: bytes | None = b"v", codec: Compression = Compression.NONE, producer: int = -1
) -> bytes:
    return encode(
        [Record(0, NOW_MS, key, value) for key in keys],
        base_offset=base,
        producer_id=producer,
        producer_epoch=2,
        base_sequence=base,
        compression=codec,
        attributes=TRANSACTIONAL if producer >= 0 else 0,
    )


def marker_of(base: int, producer: int, *, is_commit: bool) -> bytes:
    marker = encode_marker(ProducerIdAndEpoch(producer, 2), EndTransactionMarker(is_commit, 4), NOW_MS)
    return base.to_bytes(8, "big") + marker[8:]


def filter_of(
    log: bytes, *, now_ms: int = NOW_MS, retention_ms: int = 100, needed: frozenset[int] = frozenset()
) -> BatchFilter:
    offsets = OffsetMap(1 << 16, 0, 1000, bytes(SEED_BYTES))
    OffsetMapBuilder(offsets).add(log)
    return BatchFilter(offsets, end=offsets.end, now_ms=now_ms, delete_retention_ms=retention_ms, needed=needed)


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_of_last_records_stays_byte_for_byte(codec: Compression) -> None:
    log = batch_of(0, b"a", b"b", codec=codec) + batch_of(2, b"c", codec=codec)
    assert filter_of(log).filter(log) == log


@pytest.mark.parametrize("codec", Compression)
def test_a_rewritten_batch_keeps_its_codec_and_its_offsets(codec: Compression) -> None:
    log = batch_of(0, b"a", b"b", b"a", codec=codec) + batch_of(3, b"c")
    first, _ = headers(filter_of(log).filter(log))
    assert (first.base_offset, first.end, first.record_count) == (0, 3, 2)
    assert first.attributes == codec
    assert [record.offset for record in decode(filter_of(log).filter(log)[: first.size])] == [1, 2]


def test_a_producers_last_batch_and_marker_stay_without_data() -> None:
    log = batch_of(0, b"a", producer=9) + marker_of(1, 9, is_commit=True) + batch_of(2, b"a") + batch_of(3, b"z")
    producers = Producers()
    of_producer, end, *_ = headers(log)
    producers.appended_in_transaction(of_producer, 0, 1, NOW_MS)
    producers.ended(end, 1, EndTransactionMarker(True, 4), NOW_MS)
    needed = needed_offsets(producers)
    assert needed == {0, 1}
    left = filter_of(log, needed=frozenset(needed)).filter(log)
    first, marker, *_ = headers(left)
    assert (first.record_count, first.size, first.end) == (0, HEADER_BYTES, 1)
    assert (first.producer_id, first.producer_epoch, first.last_sequence) == (9, 2, 0)
    assert (first.base_timestamp, first.max_timestamp) == (NO_TIMESTAMP, NOW_MS)
    assert decode(left[: first.size]) == []
    assert left[first.size : first.size + marker.size] == log[of_producer.size : of_producer.size + end.size]
    assert not filter_of(log).filter(log).startswith(left[: first.size])


def test_a_batch_without_records_goes_when_it_is_not_needed_any_more() -> None:
    log = batch_of(0, b"a") + batch_of(1, b"a")
    empty = filter_of(log, needed=frozenset({0})).filter(log)
    assert [header.record_count for header in headers(empty)] == [0, 1]
    assert filter_of(empty, needed=frozenset({0})).filter(empty) == empty
    assert [header.base_offset for header in headers(filter_of(empty).filter(empty))] == [1]


def test_the_batch_with_the_last_offset_of_the_round_stays() -> None:
    log = batch_of(0, b"a", producer=3) + batch_of(1, b"b", producer=3)
    offsets = OffsetMap(1 << 16, 0, 1000, bytes(SEED_BYTES))
    aborted = [AbortedRow(3, 0, 2, 3)]
    builder = OffsetMapBuilder(offsets)
    builder.expect(aborted)
    builder.add(log)
    assert (offsets.end, len(offsets)) == (2, 0)
    batch_filter = BatchFilter(offsets, end=2, now_ms=NOW_MS, delete_retention_ms=0, needed=())
    batch_filter.expect(aborted)
    assert [(header.base_offset, header.record_count) for header in headers(batch_filter.filter(log))] == [(1, 0)]


def test_transactions_go_on_from_one_call_to_the_next() -> None:
    calls = [batch_of(0, b"a", producer=3), batch_of(1, b"b"), marker_of(2, 3, is_commit=False) + batch_of(3, b"z")]
    row = AbortedRow(3, 0, 2, 3)
    batch_filter = filter_of(batch_of(3, b"z"))
    batch_filter.expect([row])
    assert batch_filter.filter(calls[0]) == b""
    assert batch_filter.take_aborted() == []
    batch_filter.expect([row])
    assert batch_filter.filter(calls[1]) == calls[1]
    batch_filter.expect([row])
    assert batch_filter.filter(calls[2]) == calls[2]
    assert batch_filter.take_aborted() == [row]
    assert batch_filter.take_aborted() == []


def test_a_marker_goes_in_two_rounds_and_then_has_no_row() -> None:
    log = marker_of(0, 3, is_commit=False) + batch_of(1, b"z")
    batch_filter = filter_of(log)
    batch_filter.expect([AbortedRow(3, 0, 0, 1)])
    waiting = batch_filter.filter(log)
    marker, _ = headers(waiting)
    assert batch_filter.take_aborted() == []
    assert marker.attributes & DELETE_HORIZON
    assert (marker.base_timestamp, marker.max_timestamp) == (NOW_MS + 100, NOW_MS)
    assert decode(waiting[: marker.size]) == decode(log[: marker.size])
    assert _same_but_for_the_horizon(marker, headers(log)[0])
    assert filter_of(waiting, now_ms=NOW_MS + 99).filter(waiting) == waiting
    assert len(headers(filter_of(waiting, now_ms=NOW_MS + 100).filter(waiting))) == 1


def _same_but_for_the_horizon(marker: BatchHeader, former: BatchHeader) -> bool:
    of_horizon = {"attributes": 0, "base_timestamp": 0, "crc": 0, "length": 0}
    return marker._replace(**of_horizon) == former._replace(**of_horizon)


def test_a_tombstone_may_be_kept_for_ever() -> None:
    log = batch_of(0, b"a", value=None)
    left = filter_of(log, retention_ms=(1 << 63) - 1).filter(log)
    assert decode(left) == decode(log)
    assert check(left).base_timestamp > NOW_MS * 1000


def test_a_log_without_its_beginning_keeps_tombstones_and_markers() -> None:
    """The records that they delete or end may be in the part of the log that only the archive has."""
    log = batch_of(5, b"a", value=None) + marker_of(6, 1, is_commit=False) + batch_of(7, b"b")
    for now_ms in (NOW_MS, NOW_MS + 1000):
        offsets = OffsetMap(1 << 16, 0, 1000, bytes(SEED_BYTES))
        OffsetMapBuilder(offsets).add(log)
        terms = {"end": offsets.end, "now_ms": now_ms, "delete_retention_ms": 100, "needed": frozenset[int]()}
        partial = BatchFilter(offsets, **terms, is_whole=False)  # type: ignore[arg-type]
        row = AbortedRow(1, 2, 6, 7)
        partial.expect([row])
        left = partial.filter(log)
        assert [header.base_offset for header in headers(left)] == [5, 6, 7]
        assert partial.take_aborted() == [row]
        whole = BatchFilter(offsets, **terms)  # type: ignore[arg-type]
        log = left
    assert [header.base_offset for header in headers(whole.filter(left))] == [7]


def test_a_batch_that_cannot_be_read_ends_the_round() -> None:
    log = batch_of(0, b"a", b"b")
    with pytest.raises(CorruptBatch):
        filter_of(log).filter(log[:-1])
    packed = bytearray(batch_of(0, b"a", b"b", codec=Compression.ZSTD))
    packed[HEADER_BYTES] ^= 0xFF
    with pytest.raises(CorruptBatch):
        filter_of(log).filter(bytes(packed))
