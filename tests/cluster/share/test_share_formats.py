"""Record formats of `__share_group_state`, byte for byte as Kafka's message schemas have them."""

from uuid import UUID

import pytest

from cordwood.cluster.share.formats import (
    SNAPSHOT,
    UPDATE,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    encode_update,
)
from cordwood.cluster.share.state import SharePartitionState
from cordwood.cluster.share.states import RecordState, SharePartitionKey, StateBatch, parse_key
from cordwood.storage.errors import CorruptBatch

TOPIC_ID = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
KEY = SharePartitionKey("workers", TOPIC_ID, 7)
A, B = StateBatch(10, 13, RecordState.AVAILABLE, 2), StateBatch(15, 16, RecordState.ARCHIVING, 5)
STATE = SharePartitionState(3, 4, 5, 10, 1, 1_700_000_000_000, (A, B), (B,), 2)


def test_keys() -> None:
    raw = b"\x00\x01\x00\x07workers" + TOPIC_ID.bytes + b"\x00\x00\x00\x07"
    assert encode_key(UPDATE, KEY) == raw
    assert decode_key(raw) == (UPDATE, KEY)
    assert decode_key(encode_key(SNAPSHOT, KEY)) == (SNAPSHOT, KEY)
    assert decode_key(b"\x00\x09future") is None
    assert parse_key(str(KEY)) == KEY
    assert str(KEY) == "workers:AAECAwQFBgcICQoLDA0ODw:7"
    assert parse_key("a:b:AAECAwQFBgcICQoLDA0ODw:0").group_id == "a:b"


@pytest.mark.parametrize("text", ["", "workers", "workers:x:7", "workers:AAECAwQFBgcICQoLDA0ODw:-1", ":x:y:z"])
def test_texts_that_name_no_share_partition(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|base64"):
        parse_key(text)


def test_a_snapshot() -> None:
    raw = bytes.fromhex(
        "0000"  # version
        "00000003"  # snapshot epoch
        "00000004"  # state epoch
        "00000005"  # leader epoch
        "000000000000000a"  # start offset
        "0000018bcfe56800"  # created
        "0000018bcfe56801"  # written
        "03"  # two batches
        "000000000000000a000000000000000c00000200"
        "000000000000000f000000000000000f03000500"
        "0100"  # one tagged field, number 0
        "0400000001"  # its four bytes: the records that are done
    )
    assert encode_snapshot(STATE, 1_700_000_000_001) == raw
    decoded = decode_snapshot(raw)
    assert (decoded.batches, decoded.start_offset, decoded.delivery_complete_count) == ((A, B), 10, 1)
    assert (decoded.snapshot_epoch, decoded.state_epoch, decoded.leader_epoch) == (3, 4, 5)


def test_an_update_has_what_has_changed_since_the_snapshot() -> None:
    raw = bytes.fromhex("00000000000300000005000000000000000a02000000000000000f000000000000000f0300050001000400000001")
    assert encode_update(STATE) == raw
    snapshot = SharePartitionState(3, 4, 5, 9, -1, 0, (StateBatch(9, 13, RecordState.AVAILABLE, 2),))
    restored = snapshot.restored(decode_update(raw))
    assert (restored.batches, restored.start_offset, restored.delivery_complete_count) == ((A, B), 10, 1)


def test_an_update_of_another_snapshot_does_not_count() -> None:
    newer = SharePartitionState(snapshot_epoch=4, start_offset=20)
    assert newer.restored(decode_update(encode_update(STATE))) == newer


def test_values_that_cannot_be_read() -> None:
    raw = encode_snapshot(STATE, 0)
    with pytest.raises(CorruptBatch):
        decode_snapshot(raw[:40])
    with pytest.raises(CorruptBatch):
        decode_snapshot(b"\x00\x07" + raw[2:])
    locked = SharePartitionState(batches=(StateBatch(0, 1, RecordState.ACQUIRED, 1),))
    with pytest.raises(CorruptBatch):
        decode_snapshot(encode_snapshot(locked, 0))
