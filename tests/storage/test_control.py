"""Transaction markers: the control batch that commits or aborts a transaction, and other control records."""

import pytest

from cordwood.storage.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, check, headers
from cordwood.storage.control import EndTransactionMarker, decode_marker, encode_marker, markers_in
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.types import ProducerIdAndEpoch

PRODUCER = ProducerIdAndEpoch(7, 3)


@pytest.mark.parametrize(("is_commit", "kind"), [(True, b"\x00\x01"), (False, b"\x00\x00")])
def test_a_marker_has_kafkas_bytes(is_commit: bool, kind: bytes) -> None:
    batch = encode_marker(PRODUCER, EndTransactionMarker(is_commit, 5), 1000)
    header = check(batch)
    assert header.attributes == TRANSACTIONAL | CONTROL
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, NO_SEQUENCE)
    [record] = decode(batch)
    assert record == Record(0, 1000, b"\x00\x00" + kind, b"\x00\x00\x00\x00\x00\x05")
    assert decode_marker(batch) == EndTransactionMarker(is_commit, 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x01", b"\x00\x00"),
        (b"\x00\x00\x00\x01", None),
        (None, b"\x00\x00\x00\x00\x00\x05"),
    ],
)
def test_other_control_records_are_no_markers(key: bytes | None, value: bytes | None) -> None:
    assert decode_marker(encode([Record(0, 0, key, value)], attributes=CONTROL)) is None


def test_bytes_that_are_no_batch_are_no_marker() -> None:
    assert decode_marker(b"\x00" * 80) is None


def test_markers_are_found_among_other_batches_by_their_offset() -> None:
    abort, commit = EndTransactionMarker(False, 1), EndTransactionMarker(True, 2)
    data = encode([Record(0, 0, None, b"a"), Record(0, 0, None, b"b")])
    offsets = [0]
    for offset, marker in ((2, abort), (3, commit)):
        batch = bytearray(encode_marker(PRODUCER, marker, 0))
        batch[7] = offset
        data += bytes(batch)
        offsets.append(offset)
    batches = headers(data)
    assert [header.base_offset for header in batches] == offsets
    assert markers_in(data, batches) == {2: abort, 3: commit}
