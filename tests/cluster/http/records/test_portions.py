"""Fetched batches are decoded in portions, bounded in records and bytes, as their reader takes them."""

import asyncio
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from raw_batches import NOW_MS, body_of, bomb, raw_batch, zero_deltas

from cordwood.cluster.http.records.portions import (
    CONTENT_BYTES_MAX,
    LIGHT_BYTES_MAX,
    LOOKED_AT_MAX,
    RECORD_BYTES_MAX,
    RECORDS_MAX,
    USUAL_RECORD_BYTES,
    Portion,
    Portions,
    next_portion,
    next_usual,
)
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import Memory
from cordwood.storage.batch import CONTROL, TRANSACTIONAL, Compression
from cordwood.storage.budget import UNPACKED_BYTES_MAX
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import FRONT_BYTES, LargeRecord, Record, RecordCursor, encode

ALL = range(1 << 63)
BOMB_RECORDS = 300_000
VALUE_BYTES = 1 << 20


def batch(*values: bytes, base: int = 0, key: bytes | None = None, attributes: int = 0) -> bytes:
    return encode([Record(0, NOW_MS, key, value) for value in values], base_offset=base, attributes=attributes)


def all_of(portions: Portions) -> list[Portion]:
    found = []
    while not portions.is_over:
        found.append(portions.next())
    return found


def offsets(*portions: Portion) -> list[int]:
    return [record.offset for portion in portions for record in portion.records]


def test_one_record_costs_one_record() -> None:
    cursor = RecordCursor(bomb(BOMB_RECORDS))
    next(cursor.records())
    assert cursor.unpacked_bytes_max == FRONT_BYTES
    assert cursor.left == BOMB_RECORDS - 1


def test_a_reader_of_one_record_takes_no_memory_for_the_rest() -> None:
    portions = Portions(bomb(BOMB_RECORDS), ALL, None, records_max=1)
    tracemalloc.start()
    portion = portions.next()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (offsets(portion), portion.end) == ([0], 1)
    assert peak_bytes < 100_000


def test_a_batch_is_read_as_far_as_one_may_unpack_and_the_rest_is_stepped_over() -> None:
    count = UNPACKED_BYTES_MAX // VALUE_BYTES + 1
    body = body_of([Record(0, NOW_MS, None, bytes(VALUE_BYTES))] * count)
    batches = raw_batch(bytes(cramjam.zstd.compress(body)), count, Compression.ZSTD)
    del body
    tracemalloc.start()
    first = Portions(batches, ALL, None, records_max=1).next()
    assert (offsets(first), first.end) == ([0], 1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    assert peak_bytes < 8 * VALUE_BYTES
    last = Portions(batches, range(count - 1, count), None, records_max=1).next()
    assert "decompresses to more than 64 MiB" in (last.damage or "")
    assert (offsets(last), last.end) == ([], count)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 * UNPACKED_BYTES_MAX


class HeldThread:
    """The decode queue's thread, which takes work once it is let go."""

    def __init__(self) -> None:
        self.is_free = asyncio.Event()
        self.decoding = DecodeQueue(self._run_blocking, Memory.unlimited().decoding)

    async def _run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await self.is_free.wait()
        return function(*arguments)


async def everything_else() -> None:
    """Let the event loop run all that waits for no thread."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("take", [next_usual, next_portion])
@pytest.mark.parametrize(
    ("batches", "goes_beside"),
    [
        (bomb(BOMB_RECORDS), True),
        (batch(b"v" * LIGHT_BYTES_MAX), True),
        (batch(b"v"), False),
    ],
    ids=["compressed", "large", "light"],
)
def test_what_may_take_long_to_decode_is_decoded_beside_the_loop(take: Any, batches: bytes, goes_beside: bool) -> None:
    async def scenario() -> None:
        thread, portions = HeldThread(), Portions(batches, ALL, None, records_max=1)
        taking = asyncio.ensure_future(take(portions, thread.decoding))
        await everything_else()
        assert taking.done() is not goes_beside
        thread.is_free.set()
        assert offsets(await taking) == [0]

    asyncio.run(scenario())


def test_aborted_transactions_are_left_out_and_passed_over() -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    aborted = encode([Record(0, NOW_MS, None, b"x")], base_sequence=0, attributes=TRANSACTIONAL, **producer)
    batches = aborted + batch(b"a", base=1)
    assert [offsets(*all_of(Portions(batches, ALL, None, aborted=found))) for found in ((), [(7, 0)])] == [[0, 1], [1]]
    portions = Portions(aborted, ALL, None, aborted=[(7, 0)])
    assert portions.next() == Portion([], 1)
    assert portions.is_over


def test_portions_are_bounded_and_nothing_is_left_out() -> None:
    portions = all_of(Portions(bomb(BOMB_RECORDS // 100), ALL, None))
    assert offsets(*portions) == list(range(BOMB_RECORDS // 100))
    assert max(len(portion.records) for portion in portions) == RECORDS_MAX
    assert [portion.end for portion in portions] == [record + 1 for record in offsets(*portions)[499::500]]


def test_what_is_unpacked_is_given_back_between_portions() -> None:
    portions = Portions(bomb(BOMB_RECORDS), range(BOMB_RECORDS - 700, BOMB_RECORDS), None)
    tracemalloc.start()
    first = portions.next()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 1 << 20
    assert offsets(first, *all_of(portions)) == list(range(BOMB_RECORDS - 700, BOMB_RECORDS))


def test_a_large_value_ends_a_portion() -> None:
    large = batch(*[b"v" * (CONTENT_BYTES_MAX // 2)] * 5)
    assert [len(portion.records) for portion in all_of(Portions(large, ALL, None))] == [2, 2, 1]


def test_a_search_for_a_key_is_done_in_portions_too() -> None:
    looked_through = batch(*[b"v"] * (2 * LOOKED_AT_MAX), key=b"other") + batch(b"v", base=2 * LOOKED_AT_MAX, key=b"k")
    portions = all_of(Portions(looked_through, ALL, b"k"))
    assert [len(portion.records) for portion in portions] == [0, 0, 1]
    assert [portion.end for portion in portions] == [LOOKED_AT_MAX, 2 * LOOKED_AT_MAX, 2 * LOOKED_AT_MAX + 1]


def test_only_what_is_wanted_is_handed_out() -> None:
    batches = batch(b"a", b"b") + batch(b"c", base=2, attributes=CONTROL) + batch(b"d", b"e", b"f", base=3)
    portion = Portions(batches, range(1, 5), None).next()
    assert (offsets(portion), portion.end) == ([1, 3, 4], 5)
    assert Portions(batches, range(1, 100), None).next().end == 6


@pytest.mark.parametrize("poison", [zero_deltas(1000), zero_deltas(10, Compression.NONE), raw_batch(b"\xff" * 30, 7)])
def test_a_batch_that_cannot_be_decoded_is_stepped_over(poison: bytes) -> None:
    poison_end = RecordCursor(poison).end
    portions = all_of(Portions(poison + batch(b"next", base=poison_end), ALL, None))
    [damaged] = [portion for portion in portions if portion.damage]
    assert (damaged.records, damaged.end) == ((), poison_end)
    assert offsets(portions[-1]) == [poison_end]


def test_a_record_that_is_too_large_is_stepped_over_before_it_is_unpacked() -> None:
    body = body_of([Record(0, NOW_MS, None, bytes(4 * RECORD_BYTES_MAX))])
    portions = Portions(raw_batch(bytes(cramjam.zstd.compress(body)), 1, Compression.ZSTD), ALL, None)
    tracemalloc.start()
    portion = portions.next()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "the limit is 8388608" in (portion.damage or "")
    assert peak_bytes < 1 << 20


def test_a_large_record_is_decoded_by_a_reader_that_takes_it() -> None:
    portions = Portions(batch(b"v", b"v" * 1_000_000, b"v"), ALL, None)
    assert offsets(portions.next(USUAL_RECORD_BYTES)) == [0]
    with pytest.raises(LargeRecord):
        portions.next(USUAL_RECORD_BYTES)
    assert offsets(portions.next()) == [1]
    assert offsets(portions.next(USUAL_RECORD_BYTES)) == [2]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_reader_that_waits_for_a_large_record_holds_the_fetched_batch_alone(codec: Compression) -> None:
    body = body_of([Record(0, NOW_MS, None, random.Random(1).randbytes(900_000))])
    packed = body if codec is Compression.NONE else bytes(cramjam.zstd.compress(body))
    portions = Portions(raw_batch(packed, 1, codec), ALL, None)
    tracemalloc.start()
    with pytest.raises(LargeRecord):
        portions.next(USUAL_RECORD_BYTES)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 100_000
    assert offsets(portions.next()) == [0]


def test_bytes_that_are_not_what_was_written_are_not_stepped_over() -> None:
    damaged = bytearray(batch(b"value"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        Portions(bytes(damaged), ALL, None).next()
