"""Records of `__transaction_state`, against bytes that Kafka writes."""

from uuid import UUID

import pytest

from cordwood.cluster.transactions.formats import decode_key, decode_value, encode_key, encode_value
from cordwood.cluster.transactions.shard import PartitionNames
from cordwood.cluster.transactions.states import TransactionState
from cordwood.cluster.transactions.transaction import AddedPartition, Transaction
from cordwood.storage.errors import CorruptBatch

FLIGHTS, PLANES = UUID(int=1), UUID(int=2)
BY_NAME = {"flights": FLIGHTS, "planes": PLANES}

VERSION_0 = bytes.fromhex(
    "0000"
    "0000000000000007"
    "0003"
    "0000ea60"
    "01"
    "00000001"
    "0007"
    "666c6967687473"
    "00000002"
    "00000000"
    "00000002"
    "0000018bcfe56805"
    "0000018bcfe56800"
)
"""Producer 7, epoch 3, 60 s, Ongoing, flights-0 and flights-2."""


def restored(value: bytes) -> Transaction:
    names = PartitionNames()
    return decode_value(value, lambda topic_id, topic, index: names.intern(topic_id or BY_NAME[topic], topic, index))


def whole(**changes: object) -> Transaction:
    fields = {
        "producer_id": 7,
        "epoch": 3,
        "last_epoch": -1,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "timeout_ms": 60_000,
        "state": TransactionState.ONGOING,
        "partitions": (AddedPartition(FLIGHTS, "flights", 0), AddedPartition(FLIGHTS, "flights", 2)),
        "start_ms": 1_700_000_000_000,
        "update_ms": 1_700_000_000_005,
        "is_v2": False,
    }
    return Transaction(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_key_is_kafkas() -> None:
    assert encode_key("pay") == b"\x00\x00\x00\x03pay"
    assert decode_key(b"\x00\x00\x00\x03pay") == "pay"
    assert decode_key(b"\x00\x01\x00\x03pay") is None


def test_version_0_is_read() -> None:
    assert restored(VERSION_0) == whole()


def test_version_1_is_written() -> None:
    written = encode_value(whole(previous_producer_id=6, next_producer_id=8, is_v2=True))
    assert written == bytes.fromhex(
        "0001"
        "0000000000000007"
        "0003"
        "0000ea60"
        "01"
        "02"
        "08"
        "666c6967687473"
        "03"
        "00000000"
        "00000002"
        "00"
        "0000018bcfe56805"
        "0000018bcfe56800"
        "04"
        "0008"
        "0000000000000006"
        "0108"
        "0000000000000008"
        "02020002"
        "6510" + FLIGHTS.bytes.hex()
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"is_v2": True, "last_epoch": 2},
        {"previous_producer_id": 1 << 40, "next_producer_id": 1 << 41, "epoch": 32_767},
        {"state": TransactionState.EMPTY, "partitions": (), "start_ms": -1},
        {"state": TransactionState.COMPLETE_ABORT, "partitions": ()},
        {"partitions": tuple(AddedPartition(PLANES, "planes", index) for index in range(500))},
    ],
)
def test_every_field_is_restored(changes: dict[str, object]) -> None:
    assert restored(encode_value(whole(**changes))) == whole(**changes)


def test_a_topic_that_was_created_again_is_another_one() -> None:
    old, new = AddedPartition(PLANES, "flights", 0), AddedPartition(FLIGHTS, "flights", 0)
    assert set(restored(encode_value(whole(partitions=(old, new)))).partitions) == {old, new}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        VERSION_0[:-1],
        b"\x00\x02" + VERSION_0[2:],
        VERSION_0[:16] + b"\x06" + VERSION_0[17:],
        encode_value(whole())[:-1],
        encode_value(whole())[:-18] + b"\x65\x01\x00",
    ],
)
def test_a_damaged_value_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptBatch):
        restored(value)
