"""The append workload: unique values, their encoding, and determinism by seed."""

import random

import pytest

from cordwood.chaos.history import UNKNOWN, value_of
from cordwood.chaos.workload import PAYLOAD_BYTES_MIN, AppendWorkload, PlannedRecord, decode, encode


def appends(seed: int, count: int = 300, producer: int = 3) -> list[PlannedRecord]:
    workload = AppendWorkload(producer, partitions=4, rng=random.Random(seed), keys=10, payload_bytes_max=100)
    return [workload.next() for _ in range(count)]


def test_a_seed_decides_everything() -> None:
    assert appends(1) == appends(1)
    assert appends(1) != appends(2)


def test_values_are_unique_and_without_a_gap() -> None:
    assert [each.sequence for each in appends(1)] == list(range(300))
    assert len({each.value for producer in (1, 2) for each in appends(1, producer=producer)}) == 600


def test_every_partition_has_keys_of_its_own() -> None:
    partitions_of: dict[bytes, set[int]] = {}
    for each in appends(1):
        partitions_of.setdefault(each.key, set()).add(each.partition)
    assert all(len(partitions) == 1 for partitions in partitions_of.values())
    assert len(partitions_of) == 10
    assert set().union(*partitions_of.values()) == {0, 1, 2, 3}


def test_a_record_that_is_read_says_which_it_is() -> None:
    sizes = set()
    for each in appends(1):
        assert decode(each.payload) == each.value == value_of(3, each.sequence)
        sizes.add(len(each.payload))
    assert min(sizes) >= PAYLOAD_BYTES_MIN
    assert max(sizes) <= 100
    assert len(sizes) > 20


@pytest.mark.parametrize("position", [0, 15, 16, 40])
def test_damage_to_any_byte_is_noticed(position: int) -> None:
    damaged = bytearray(encode(value_of(3, 77), 41))
    damaged[position] ^= 1
    assert decode(bytes(damaged)) != value_of(3, 77)


@pytest.mark.parametrize(
    "payload", [None, b"", b"short", b"0x00000000000001", b"-000000000000005", b"no number at all"]
)
def test_what_no_producer_sends_has_no_value(payload: bytes | None) -> None:
    assert decode(payload) == UNKNOWN
