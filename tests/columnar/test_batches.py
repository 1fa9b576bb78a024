"""Batches of a fetch response: validation, incomplete batches, and skipping of control and aborted batches."""

import struct
from collections.abc import Sequence

import pytest
from decoded import PLACE, decoded, sealed

from cordwood.columnar.batches import Aborted, split
from cordwood.columnar.errors import CorruptRecords, OldFormat
from cordwood.storage.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL
from cordwood.storage.records import Record, encode

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
ANN, BOB = 7, 8


class Writers:
    """A log of batches from transactional and other producers."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0

    def plain(self, *values: str) -> "Writers":
        return self._batch(values)

    def within(self, producer_id: int, *values: str) -> "Writers":
        return self._batch(values, producer_id=producer_id, attributes=TRANSACTIONAL)

    def aborts(self, producer_id: int) -> "Writers":
        return self._marker(ABORT, producer_id)

    def commits(self, producer_id: int) -> "Writers":
        return self._marker(COMMIT, producer_id)

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    def _marker(self, key: bytes, producer_id: int) -> "Writers":
        marker = [Record(self.end, 0, key, b"\x00" * 6)]
        return self._put(marker, producer_id=producer_id, attributes=TRANSACTIONAL | CONTROL)

    def _batch(self, values: Sequence[str], **fields: int) -> "Writers":
        return self._put([Record(self.end + at, 0, None, value.encode()) for at, value in enumerate(values)], **fields)

    def _put(self, records: list[Record], **fields: int) -> "Writers":
        self.batches.append(encode(records, base_offset=self.end, **fields))
        self.end += len(records)
        return self


def values(log: Writers, *aborted: Aborted, start: int = 0) -> list[str]:
    return [(record.value or b"").decode() for record in decoded(log.data, start=start, aborted=aborted)]


def test_a_batch_that_came_in_part_waits_for_the_next_fetch() -> None:
    log = Writers().plain("a", "b").plain("c")
    for cut in range(1, len(log.batches[1])):
        assert [batch.header.end for batch in split(log.data[:-cut], PLACE, 0)] == [2]


def test_a_first_batch_that_came_in_part_is_an_error() -> None:
    [batch] = Writers().plain("a").batches
    with pytest.raises(CorruptRecords, match=r"flights-3 .* offset 0: .* not a whole batch"):
        split(batch[:-1], PLACE, 0)


def test_a_flipped_bit_anywhere_after_the_length_is_found() -> None:
    [batch] = Writers().plain("a").batches
    for at in range(16, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x04
        with pytest.raises((CorruptRecords, OldFormat)):
            decoded(bytes(damaged))


def test_the_offset_of_the_damaged_batch_is_reported() -> None:
    log = Writers().plain("a", "b", "c").plain("d")
    damaged = log.data[:-1] + b"!"
    with pytest.raises(CorruptRecords, match="offset 3: CRC-32C"):
        decoded(damaged)


def test_batches_from_before_the_offset_that_was_asked_for_are_an_error() -> None:
    with pytest.raises(CorruptRecords, match="offsets 0 to 2 instead"):
        split(Writers().plain("a", "b").data, PLACE, 2)


def test_the_same_batch_twice_is_an_error() -> None:
    [batch] = Writers().plain("a", "b").batches
    with pytest.raises(CorruptRecords, match="offset 2: offsets 0 to 2 instead"):
        split(batch + batch, PLACE, 0)


def test_an_old_format_is_refused_with_a_sentence() -> None:
    old = struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(20)
    with pytest.raises(OldFormat, match=r"flights-3 .* older than Kafka 0\.11"):
        split(old, PLACE, 0)


def test_control_batches_are_no_records() -> None:
    log = Writers().plain("a").within(ANN, "b").commits(ANN).plain("c")
    assert values(log) == ["a", "b", "c"]
    assert [record.offset for record in decoded(log.data)] == [0, 1, 3]


def test_an_aborted_transaction_is_skipped_and_all_around_it_is_not() -> None:
    log = Writers().plain("a").within(ANN, "no", "no").within(BOB, "b").aborts(ANN).within(ANN, "c").commits(BOB)
    log.commits(ANN).plain("d")
    assert values(log, Aborted(ANN, 1)) == ["a", "b", "c", "d"]


def test_transactions_of_the_same_producer_are_aborted_one_by_one() -> None:
    log = Writers().within(ANN, "no").aborts(ANN).within(ANN, "a").commits(ANN).within(ANN, "no").aborts(ANN)
    assert values(log, Aborted(ANN, 4), Aborted(ANN, 0)) == ["a"]


def test_an_abort_that_began_before_the_answer_is_known_by_its_list() -> None:
    log = Writers().within(ANN, "no").within(ANN, "no").aborts(ANN).plain("a")
    log.batches.pop(0)
    assert values(log, Aborted(ANN, 0), start=1) == ["a"]


def test_a_batch_that_compaction_has_emptied_is_passed_over() -> None:
    emptied = bytearray(Writers().plain("x", "y", "z").data)[:HEADER_BYTES]
    struct.pack_into(">i", emptied, 57, 0)
    data = sealed(emptied)
    assert [batch.header.end for batch in split(data, PLACE, 0)] == [3]
    assert decoded(data) == []
