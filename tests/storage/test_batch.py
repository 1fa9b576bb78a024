"""The RecordBatch header: parsing, checksum validation, and stamping of offset, leader epoch and append time."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.storage.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    check,
    in_parts,
    peek,
    split,
    stamp,
    with_append_time,
)
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, decode, encode

BATCH = encode(
    [Record(0, 1000, b"k", b"a"), Record(0, 999, None, b"b"), Record(0, 1500, b"k", None)],
    base_offset=40,
    leader_epoch=3,
    producer_id=77,
    producer_epoch=2,
    base_sequence=9,
)


def test_the_header_has_what_a_log_needs() -> None:
    header = check(BATCH)
    assert (header.base_offset, header.end, header.record_count) == (40, 43, 3)
    assert (header.size, header.leader_epoch, header.max_timestamp) == (len(BATCH), 3, 1500)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (77, 2, 9, 11)
    assert not header.is_control
    assert not header.is_transactional


def test_sequence_numbers_wrap_to_zero() -> None:
    batch = encode([Record(0, 0, None, b"")] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert check(batch).last_sequence == 0


def test_a_batch_is_found_after_another() -> None:
    assert check(b"xyz" + BATCH, 3) == check(BATCH)
    assert list(split(BATCH * 3)) == [BATCH] * 3


@pytest.mark.parametrize(
    ("batches_max", "bytes_max", "parts"),
    [
        pytest.param(9, 9 * len(BATCH), [5], id="all together"),
        pytest.param(2, 9 * len(BATCH), [2, 2, 1], id="by their number"),
        pytest.param(9, 3 * len(BATCH) + 1, [3, 2], id="by their bytes"),
        pytest.param(9, 1, [1] * 5, id="one that is larger"),
    ],
)
def test_batches_are_parted_between_them(batches_max: int, bytes_max: int, parts: list[int]) -> None:
    found = list(in_parts(memoryview(BATCH * 5), batches_max, bytes_max))
    assert [(bytes(part), count) for part, count in found] == [(BATCH * count, count) for count in parts]


@pytest.mark.parametrize("rest", [BATCH[:-1], BATCH[:12], BATCH[:8] + bytes(60), BATCH[:8] + b"\xff" * 60])
def test_what_is_no_batch_stays_with_those_before_it(rest: bytes) -> None:
    found = [(bytes(part), count) for part, count in in_parts(memoryview(BATCH * 3 + rest), 2, 1 << 20)]
    assert found == [(BATCH * 2, 2), (BATCH + rest, 1)]
    assert list(in_parts(memoryview(rest), 2, 1 << 20)) == [(rest, 0)]


def test_no_data_is_one_part() -> None:
    assert list(in_parts(memoryview(b""), 2, 1)) == [(b"", 0)]


def test_stamping_changes_offset_and_epoch_and_nothing_else() -> None:
    stamped = stamp(peek(BATCH), 5_000_000_000, 8) + BATCH[16:]
    header = check(stamped)
    assert (header.base_offset, header.end, header.leader_epoch) == (5_000_000_000, 5_000_000_003, 8)
    assert stamped[16:] == BATCH[16:]
    assert [record.value for record in decode(stamped)] == [b"a", b"b", None]


def test_append_time_becomes_the_time_of_every_record() -> None:
    batch = with_append_time(BATCH, 7777)
    assert check(batch).attributes & LOG_APPEND_TIME
    assert check(batch).max_timestamp == 7777
    assert [record.timestamp for record in decode(batch)] == [7777] * 3


@pytest.mark.parametrize("length", range(len(BATCH)))
def test_a_part_of_a_batch_is_not_a_batch(length: int) -> None:
    with pytest.raises(CorruptBatch):
        check(BATCH[:length])


@pytest.mark.parametrize("position", [p for p in range(len(BATCH)) if p not in range(8) and p not in range(12, 16)])
def test_every_flipped_bit_is_found_but_those_a_leader_stamps(position: int) -> None:
    for bit in range(8):
        damaged = bytearray(BATCH)
        damaged[position] ^= 1 << bit
        with pytest.raises(CorruptBatch):
            check(damaged)


def test_older_message_formats_are_no_batches() -> None:
    with pytest.raises(CorruptBatch, match="magic 1"):
        check(BATCH[:16] + b"\x01" + BATCH[17:])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - 13, 2**31 - 1])
def test_an_absurd_length_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch):
        check(BATCH[:8] + struct.pack(">i", length) + BATCH[12:])


@given(st.binary(max_size=300))
def test_no_bytes_make_it_stumble(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        check(data)
