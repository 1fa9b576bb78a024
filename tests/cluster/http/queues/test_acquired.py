"""Records of a ShareFetch response: only what is locked is given out, and offsets without a record are gaps."""

import asyncio
from types import SimpleNamespace

import cramjam
import pytest
from quorum_fixture import run_here
from raw_batches import NOW_MS, body_of, raw_batch

from cordwood.cluster.http.bodies import Streams
from cordwood.cluster.http.queues.acquired import Acquired, AcquiredBatches, Decoded, acquired_in
from cordwood.cluster.http.records.portions import USUAL_RECORD_BYTES
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import Memory
from cordwood.storage.batch import CONTROL, TRANSACTIONAL, Compression
from cordwood.storage.records import Record, encode


def batch(*values: bytes, base: int = 0, attributes: int = 0) -> bytes:
    return encode([Record(0, NOW_MS, None, value) for value in values], base_offset=base, attributes=attributes)


def decoded(batches: bytes, *acquired: tuple[int, int, int]) -> Decoded:
    """Decode with locked ranges of first offset, end and delivery count."""

    async def story() -> Decoded:
        decoding = DecodeQueue(run_here, Memory.unlimited().decoding)
        left = AcquiredBatches(batches, [Acquired(range(a, b), count) for a, b, count in acquired])
        found: list[Decoded] = []
        while not left.is_over:
            found.append(await left.next(decoding, Streams()))
        return Decoded([one for each in found for one in each.records], [gap for each in found for gap in each.gaps])

    return asyncio.run(story())


def values(found: Decoded) -> list[tuple[int, int, bytes | None]]:
    return [(one.offset, one.delivery_count, one.record.value) for one in found.records if one.record is not None]


def test_only_locked_records_of_a_batch_are_given_out() -> None:
    found = decoded(batch(b"a", b"b", b"c", b"d"), (1, 2, 1), (3, 4, 2))
    assert values(found) == [(1, 1, b"b"), (3, 2, b"d")]
    assert not found.gaps


def test_offsets_without_records_are_gaps() -> None:
    batches = batch(b"a", base=0) + batch(b"b", base=4) + batch(b"c", base=9)
    found = decoded(batches, (0, 8, 1), (8, 12, 3))
    assert values(found) == [(0, 1, b"a"), (4, 1, b"b"), (9, 3, b"c")]
    assert found.gaps == [range(1, 4), range(5, 8), range(8, 9), range(10, 12)]


def test_markers_are_gaps() -> None:
    batches = batch(b"a") + batch(b"marker", base=1, attributes=CONTROL | TRANSACTIONAL)
    found = decoded(batches, (0, 2, 1))
    assert values(found) == [(0, 1, b"a")]
    assert found.gaps == [range(1, 2)]


def test_compressed_and_large_records_are_decoded() -> None:
    large = b"x" * (USUAL_RECORD_BYTES + 1)
    records = [Record(0, NOW_MS, None, value) for value in (b"a", large, b"b")]
    compressed = raw_batch(bytes(cramjam.zstd.compress(body_of(records))), 3, Compression.ZSTD)
    assert values(decoded(compressed, (0, 3, 1))) == [(0, 1, b"a"), (1, 1, large), (2, 1, b"b")]


def test_records_that_cannot_be_decoded_are_given_out_with_the_reason() -> None:
    poison = raw_batch(b"\xff" * 30, 7)
    found = decoded(poison + batch(b"next", base=7), (2, 4, 5), (7, 8, 1))
    assert [(one.offset, one.delivery_count, one.record) for one in found.records[:2]] == [(2, 5, None), (3, 5, None)]
    assert all(one.reason for one in found.records[:2])
    assert values(found) == [(7, 1, b"next")]
    assert not found.gaps


def test_a_leader_that_locks_an_offset_twice_is_refused() -> None:
    def row(*ranges: tuple[int, int]) -> SimpleNamespace:
        batches = [SimpleNamespace(first_offset=first, last_offset=last, delivery_count=1) for first, last in ranges]
        return SimpleNamespace(acquired_records=batches)

    assert acquired_in(row((5, 6), (0, 4))) == [Acquired(range(5), 1), Acquired(range(5, 7), 1)]
    with pytest.raises(Malformed):
        acquired_in(row((0, 4), (4, 5)))
    with pytest.raises(Malformed):
        acquired_in(row((4, 3)))
