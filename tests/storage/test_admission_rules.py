"""Validation of the header of a produced batch: one violation for each rule, and the limits that are still valid."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from raw_batches import NOW_MS

from cordwood.storage.admission import admit
from cordwood.storage.batch import CONTROL, TRANSACTIONAL, BatchHeader, check, peek
from cordwood.storage.budget import RECORDS_MAX
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import BatchTooLarge, CorruptBatch, InvalidRecord, InvalidTimestamp
from cordwood.storage.records import Record, encode

BATCH = encode([Record(0, NOW_MS, b"k", b"v"), Record(0, NOW_MS, b"k", b"v")])
HEADER = check(BATCH)
IDEMPOTENT = HEADER._replace(producer_id=7, producer_epoch=0, base_sequence=0)
TIMED = LogConfig(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)


def test_a_sound_batch_is_let_in() -> None:
    for header in (HEADER, IDEMPOTENT):
        admit(BATCH, header, LogConfig(batch_bytes_max=len(BATCH)), NOW_MS)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (HEADER._replace(length=HEADER.length - 1), "exactly one batch"),
        (HEADER._replace(base_offset=1), "the base offset of a produced batch is 0, and not 1"),
        (HEADER._replace(last_offset_delta=2), "2 records for 3 offsets"),
        (HEADER._replace(record_count=0, last_offset_delta=-1), "0 records"),
        (HEADER._replace(attributes=5), "unknown codec 5"),
        (HEADER._replace(attributes=CONTROL), "control batches"),
        (HEADER._replace(attributes=CONTROL | TRANSACTIONAL), "control batches"),
        (IDEMPOTENT._replace(producer_id=-2), "needs an epoch and a sequence"),
        (IDEMPOTENT._replace(producer_epoch=-1), "needs an epoch and a sequence"),
        (IDEMPOTENT._replace(base_sequence=-1), "needs an epoch and a sequence"),
    ],
)
def test_what_no_consumer_could_read_is_refused(header: BatchHeader, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        admit(BATCH, header, LogConfig(), NOW_MS)


def test_a_transactional_batch_is_let_in_and_one_of_the_brokers_own_without_sequence_numbers() -> None:
    admit(BATCH, IDEMPOTENT._replace(attributes=TRANSACTIONAL), LogConfig(), NOW_MS)
    own = IDEMPOTENT._replace(attributes=TRANSACTIONAL, base_sequence=-1)
    admit(BATCH, own, LogConfig(), NOW_MS, is_own=True)
    with pytest.raises(InvalidRecord, match="needs an epoch and a sequence"):
        admit(BATCH, own._replace(producer_epoch=-1), LogConfig(), NOW_MS, is_own=True)


def test_a_batch_that_is_too_large_is_refused() -> None:
    with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
        admit(BATCH, HEADER, LogConfig(batch_bytes_max=len(BATCH) - 1), NOW_MS)
    many = HEADER._replace(record_count=RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX)
    with pytest.raises(BatchTooLarge, match="records exceeds the limit"):
        admit(BATCH, many, LogConfig(), NOW_MS)


@pytest.mark.parametrize("now_ms", [NOW_MS - 1001, NOW_MS + 1001])
def test_timestamps_are_refused_beyond_their_limits(now_ms: int) -> None:
    with pytest.raises(InvalidTimestamp):
        admit(BATCH, HEADER, TIMED, now_ms)
    admit(BATCH, HEADER, replace(TIMED, log_append_time=True), now_ms)
    admit(BATCH, HEADER, TIMED, min(max(now_ms, NOW_MS - 1000), NOW_MS + 1000))


@pytest.mark.parametrize(
    ("at", "octets", "reason"),
    [
        (16, b"\x01", "magic 1"),
        (8, (len(BATCH) - 11).to_bytes(4, "big"), "a length of"),
        (57, b"\xff\xff\xff\xff", "CRC-32C"),
    ],
)
def test_a_batch_that_is_not_one_is_corrupt(at: int, octets: bytes, reason: str) -> None:
    spoilt = BATCH[:at] + octets + BATCH[at + len(octets) :]
    with pytest.raises(CorruptBatch, match=reason):
        check(spoilt)
    assert len(spoilt) == len(BATCH)
    assert peek(spoilt) != HEADER


def test_a_negative_number_of_records_is_corrupt_though_the_checksum_fits() -> None:
    for at in (23, 57):
        spoilt = bytearray(BATCH)
        struct.pack_into(">i", spoilt, at, -1)
        struct.pack_into(">I", spoilt, 17, crc32c(bytes(spoilt[21:])))
        with pytest.raises(CorruptBatch, match="negative"):
            check(bytes(spoilt))
