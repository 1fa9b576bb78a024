"""What a producer appends next: records with unique values over keys and partitions, decided by a seed alone."""

import random
from dataclasses import dataclass

from cordwood.chaos.history import UNKNOWN, value_of

DIGITS = 16
"""A value in hexadecimal, as often as the record is long: damage to any byte shows."""
PAYLOAD_BYTES_MIN = DIGITS


@dataclass(frozen=True, slots=True)
class Append:
    """One record to send."""

    sequence: int
    partition: int
    value: int
    key: bytes
    payload: bytes


class AppendWorkload:
    """One producer's records, without an end. A key is always of the same partition, so its records have one order."""

    def __init__(
        self, producer: int, partitions: int, rng: random.Random, *, keys: int = 64, payload_bytes_max: int = 2048
    ) -> None:
        assert payload_bytes_max >= PAYLOAD_BYTES_MIN, f"a record has at least {PAYLOAD_BYTES_MIN} bytes"
        self._producer, self._partitions, self._rng = producer, partitions, rng
        self._keys, self._payload_bytes_max = max(keys, partitions), payload_bytes_max
        self._sequence = 0

    def next(self) -> Append:
        """The next record. Short and long ones, so that batches end anywhere within a page of the disk."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        key = self._rng.randrange(self._keys)
        value = value_of(self._producer, sequence)
        return Append(
            sequence=sequence,
            partition=key % self._partitions,
            value=value,
            key=b"key-%d" % key,
            payload=encode(value, self._rng.randint(PAYLOAD_BYTES_MIN, self._payload_bytes_max)),
        )


def encode(value: int, size_bytes: int = PAYLOAD_BYTES_MIN) -> bytes:
    """A record's payload."""
    digits = b"%016x" % value
    return (digits * -(-size_bytes // DIGITS))[:size_bytes]


def decode(payload: bytes | None) -> int:
    """The value of a record that was read; UNKNOWN where it is not, byte for byte, what a producer may have sent."""
    if payload is None or len(payload) < PAYLOAD_BYTES_MIN:
        return UNKNOWN
    try:
        value = int(payload[:DIGITS], 16)
    except ValueError:
        return UNKNOWN
    return value if value >= 0 and payload == encode(value, len(payload)) else UNKNOWN
