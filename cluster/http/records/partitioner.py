"""The partitioner: the partition of a key, as in Kafka's Java client."""

import functools
from collections.abc import Callable

CACHED_KEY_BYTES_MAX = 64
_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as the Java client's default partitioner does."""
    hashed = _remembered(key) if len(key) <= CACHED_KEY_BYTES_MAX else murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Return the MurmurHash 2 with the Java client's seed, as an unsigned 32-bit number."""
    length = len(data)
    hashed = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


_remembered: Callable[[bytes], int] = functools.lru_cache(16_384)(murmur2)
"""A cache: the keys of a topic repeat, and a hash costs as much as the rest of a record."""
