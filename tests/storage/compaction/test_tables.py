"""Table of keys and filter of single batches: C and Python do the same, also with damaged batches."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requirements import Requirement, needs

from cordwood.storage.batch import HEADER_BYTES, Compression, check, peek
from cordwood.storage.budget import Budget, OverBudget
from cordwood.storage.compaction import in_python as python_form
from cordwood.storage.compaction.keys import keyless_records
from cordwood.storage.compaction.offset_map import IS_NATIVE, OffsetMap, OffsetMapBuilder
from cordwood.storage.compaction.rules import Rules
from cordwood.storage.decompression import whole_body
from cordwood.storage.errors import CorruptBatch, InvalidRecord
from cordwood.storage.records import Record, decode, encode

SEED = bytes(range(16))
needs_native = needs(Requirement.CC, IS_NATIVE, "record_filter.c has not been compiled")
each_form = pytest.mark.parametrize(
    "is_native", [pytest.param(False, id="python"), pytest.param(True, id="native", marks=needs_native)]
)
keys = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=70)
fields = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=70)
times = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 200)
headers = st.lists(st.tuples(st.text(max_size=3), fields), max_size=2).map(tuple)
record = st.builds(Record, st.just(0), st.integers(0, 1 << 40), keys, fields, headers)
some_records = st.lists(record, min_size=1, max_size=8) | st.lists(record, min_size=16, max_size=40)
"""Also more than the C form reads ahead."""
flips = st.lists(st.tuples(st.integers(HEADER_BYTES, 400), st.integers(0, 255)), max_size=2)
FOR_TWENTY = {False: 20 * python_form._ENTRY_BYTES, True: 24 * 16}
"""Bytes of a table of twenty keys, in Python and in C."""


def built(batch: bytes, *, is_native: bool, bytes_max: int = 1 << 16) -> OffsetMap:
    """Return the map of a batch that begins at offset 100."""
    offsets = OffsetMap(bytes_max, 100, 1000, SEED, is_native=is_native)
    OffsetMapBuilder(offsets).add(batch)
    return offsets


def outcome(batch: bytes, rules: Rules, *, is_native: bool, bytes_max: int = 1 << 16) -> object:
    """Return all that both passes say of the batch."""
    try:
        offsets = built(batch, is_native=is_native, bytes_max=bytes_max)
        return len(offsets), offsets.end, offsets.table.sift(batch, 0, rules)
    except CorruptBatch as corrupt:
        return str(corrupt)


@each_form
def test_nothing_is_read_after_a_key_that_does_not_fit(is_native: bool) -> None:
    batch = bytearray(encode([Record(0, 0, b"%02d" % nth, None) for nth in range(40)], base_offset=100))
    # The length of a later key: more than the record has.
    batch[batch.index(b"25") - 1] = 0x7E
    offsets = built(bytes(batch), is_native=is_native, bytes_max=FOR_TWENTY[is_native])
    assert (len(offsets), offsets.end, offsets.is_full) == (20, 120, True)
    with pytest.raises(CorruptBatch):
        built(bytes(batch), is_native=is_native)


@needs_native
@given(
    some_records,
    flips,
    st.integers(100, 140),
    st.lists(st.integers(99, 140), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_c_and_python_agree(
    records: list[Record],
    flips: list[tuple[int, int]],
    end: int,
    needed: list[int],
    has_horizon: bool,
    is_small: bool,
) -> None:
    batch = bytearray(encode(records, base_offset=100, attributes=0x40 if has_horizon else 0, base_timestamp=50))
    for place, octet in flips:
        if place < len(batch):
            batch[place] = octet
    rules = Rules(end, 60, 1 << 41, array("q", sorted(set(needed))))
    natively, in_python = (
        outcome(bytes(batch), rules, is_native=is_native, bytes_max=FOR_TWENTY[is_native] if is_small else 1 << 16)
        for is_native in (True, False)
    )
    assert natively == in_python


@needs_native
@given(st.lists(st.integers(0, 61 + 40), max_size=3), st.binary(max_size=40), st.integers(0, 255))
def test_any_bytes_are_batches_or_corrupt(places: list[int], noise: bytes, octet: int) -> None:
    batch = bytearray(encode([Record(0, 5, b"k", b"v")] * 3, base_offset=100) + noise)
    for place in places:
        if place < len(batch):
            batch[place] = octet
    rules = Rules(200, 60, 70, array("q"))
    for is_native in (True, False):
        offsets = OffsetMap(1 << 12, 100, 1000, SEED, is_native=is_native)
        try:
            position = offsets.table.put(bytes(batch), 0)
            assert 0 <= position <= len(batch)
            offsets.table.sift(bytes(batch), 0, rules)
        except CorruptBatch:
            pass


@each_form
def test_keys_of_any_length_have_their_last_offsets(is_native: bool) -> None:
    keys = [bytes([length]) * length for length in range(40)] + [b"\x00" * length for length in range(1, 20)]
    batch = encode([Record(0, 0, key, b"") for key in keys + keys[:5]], base_offset=100)
    offsets = built(batch, is_native=is_native)
    assert len(offsets) == len(set(keys))
    assert [offsets.get(key) for key in keys[:6]] == [100 + len(keys) + nth for nth in range(5)] + [105]
    assert offsets.get(b"another") is None
    assert offsets.end == check(batch).end


@each_form
def test_a_full_map_ends_within_the_batch_and_takes_known_keys(is_native: bool) -> None:
    keys = [b"%d" % number for number in range(500)]
    batch = encode([Record(0, 0, key, b"") for key in [keys[0], keys[0], *keys]], base_offset=100)
    offsets = OffsetMap(1600, 100, 1000, SEED, is_native=is_native)
    builder = OffsetMapBuilder(offsets)
    assert not builder.add(batch)
    assert offsets.is_full
    assert offsets.end == 102 + len(offsets)
    assert offsets.utilization == 1.0
    assert offsets.get(keys[0]) == 102
    assert offsets.get(keys[len(offsets)]) is None
    assert not builder.add(encode([Record(0, 0, keys[0], b"")], base_offset=700))
    assert offsets.get(keys[0]) == 102


@needs_native
def test_a_map_takes_16_bytes_a_slot_and_no_more_than_its_range_needs() -> None:
    def most(bytes_max: int, limit: int) -> int:
        return OffsetMap(bytes_max, 0, limit, SEED, is_native=True).table.keys_max

    assert most(1 << 20, 1 << 40) * 16 <= 1 << 20 < most(1 << 20, 1 << 40) * 19
    assert 10 <= most(1 << 20, 10) < 20
    assert most(1, 1) == 1


@needs_native
def test_another_seed_is_another_hash() -> None:
    batch = encode([Record(0, 0, b"key", b"")], base_offset=100)
    offsets = built(batch, is_native=True)
    table = offsets.table._table  # type: ignore[attr-defined]
    table[:16] = bytes(16)
    assert offsets.get(b"key") is None


@each_form
def test_records_below_the_start_are_not_in_the_map(is_native: bool) -> None:
    batch = encode([Record(0, 0, key, b"") for key in (b"a", b"b", b"c")], base_offset=98)
    offsets = built(batch, is_native=is_native)
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [None, None, 100]


@each_form
def test_offsets_further_than_32_bits_fill_the_map(is_native: bool) -> None:
    offsets = OffsetMap(1 << 12, 0, 1 << 40, SEED, is_native=is_native)
    builder = OffsetMapBuilder(offsets)
    assert builder.add(encode([Record(0, 0, b"a", b"")], base_offset=(1 << 32) - 2))
    assert offsets.get(b"a") == (1 << 32) - 2
    assert builder.add(encode([Record(0, 0, b"a", b"")], base_offset=(1 << 32) - 1)) is not is_native
    assert offsets.get(b"a") == (1 << 32) - (2 if is_native else 1)


@each_form
@pytest.mark.parametrize("compression", Compression)
def test_records_without_a_key_are_named(is_native: bool, compression: Compression) -> None:
    records = [Record(0, 0, None if nth % 3 == 1 else b"k", b"v", (("h", None),)) for nth in range(9)]
    batch = encode(records, compression=compression)
    content, end, _ = whole_body(batch, peek(batch), Budget())
    assert list(keyless_records(content, end, 9, Budget(), 100, is_native=is_native)) == [1, 4, 7]
    assert list(keyless_records(content, end, 9, Budget(), 2, is_native=is_native)) == [1, 4]
    with pytest.raises(OverBudget):
        keyless_records(content, end, 9, Budget(records=0), 2, is_native=is_native)


@each_form
def test_malformed_records_have_no_keys(is_native: bool) -> None:
    content = bytearray(encode([Record(0, 0, b"k", b"v")])[HEADER_BYTES:])
    content[4] = 0x7E
    with pytest.raises(InvalidRecord):
        keyless_records(bytes(content), len(content), 1, Budget(), 2, is_native=is_native)


@each_form
def test_a_batch_that_grows_past_its_size_keeps_its_times(is_native: bool) -> None:
    batch = encode([Record(0, 7, b"%d" % nth, None) for nth in range(20)], base_offset=100)
    offsets = built(batch, is_native=is_native)
    sifted = offsets.table.sift(batch, 0, Rules(120, 0, 1 << 62, array("q")))
    assert decode(sifted.content) == decode(batch)
    assert len(sifted.content) > len(batch)
    assert check(sifted.content).base_timestamp == 1 << 62
