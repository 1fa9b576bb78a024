"""A producer's workload: records with unique values over keys and partitions, generated from a seed."""

import random
from dataclasses import dataclass

from cordwood.chaos.history import UNKNOWN, value_of

DIGITS = 16
"""Hexadecimal digits of a value. A payload repeats the digits up to its length, so that damage to any byte shows."""
PAYLOAD_BYTES_MIN = DIGITS


@dataclass(frozen=True, slots=True)
class PlannedRecord:
    """One record to send."""

    sequence: int
    partition: int
    value: int
    key: bytes
    payload: bytes


class AppendWorkload:
    """One producer's endless records. A key always has the same partition, so that its records have one order."""

    def __init__(
        self,
        producer: int,
        partitions: int,
        rng: random.Random,
        *,
        keys: int = 64,
        payload_bytes_max: int = 2048,
        has_lone_keys: bool = False,
    ) -> None:
        """With `has_lone_keys` no two records have the same key, so that compaction removes none of them."""
        assert payload_bytes_max >= PAYLOAD_BYTES_MIN, f"a record has at least {PAYLOAD_BYTES_MIN} bytes"
        self._producer, self._partitions, self._rng = producer, partitions, rng
        self._keys, self._payload_bytes_max = max(keys, partitions), payload_bytes_max
        self._sequence, self._has_lone_keys = 0, has_lone_keys

    def next(self) -> PlannedRecord:
        """Return the next record. Lengths vary, so that batches end anywhere within a disk page."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        key = self._rng.randrange(self._keys)
        value = value_of(self._producer, sequence)
        return PlannedRecord(
            sequence=sequence,
            partition=key % self._partitions,
            value=value,
            key=b"key-%d-%d" % (key, value) if self._has_lone_keys else b"key-%d" % key,
            payload=encode(value, self._rng.randint(PAYLOAD_BYTES_MIN, self._payload_bytes_max)),
        )


def encode(value: int, size_bytes: int = PAYLOAD_BYTES_MIN) -> bytes:
    """Return the payload of a record."""
    digits = b"%016x" % value
    return (digits * -(-size_bytes // DIGITS))[:size_bytes]


def decode(payload: bytes | None) -> int:
    """Return the value of a record that was read; UNKNOWN unless `encode` can have made the payload, byte for byte."""
    if payload is None or len(payload) < PAYLOAD_BYTES_MIN:
        return UNKNOWN
    try:
        value = int(payload[:DIGITS], 16)
    except ValueError:
        return UNKNOWN
    return value if value >= 0 and payload == encode(value, len(payload)) else UNKNOWN
