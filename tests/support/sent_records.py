"""Records that clients send and read back byte for byte: all kinds of keys, values, headers and timestamps."""

import os
import random
import time
from dataclasses import dataclass

RECORDS = int(os.environ.get("CORDWOOD_RECORDS", "2000"))
"""The number of records that a test sends; CORDWOOD_RECORDS=100000 is the full check of the promise."""
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as its producer sends it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def records(*, null_headers: bool = True) -> list[Sent]:
    """Return RECORDS records, the same every time except for their timestamps, which end about now."""
    rng = random.Random(1)
    begin_ms = int(time.time() * 1000) - RECORDS
    return [
        Sent(
            _key(rng, number),
            _value(rng, number),
            _headers(rng, number)[: None if null_headers else 4],
            begin_ms + number,
        )
        for number in range(RECORDS)
    ]


def partition_of(number: int) -> int:
    """Return a record's partition: round robin, so that each partition's order is known."""
    return number % PARTITIONS


def by_partition(sent: list[Sent]) -> dict[int, list[Sent]]:
    """Return the expected records of each partition, in order."""
    return {index: sent[index::PARTITIONS] for index in range(PARTITIONS)}


def _key(rng: random.Random, number: int) -> bytes | None:
    # Some clients refuse a record with neither key nor value.
    return (None if number % 5 else b"\x00", b"", b"key %d" % number, rng.randbytes(8))[number % 4]


def _value(rng: random.Random, number: int) -> bytes | None:
    # Long runs, which codecs compress, and noise, which they cannot compress.
    return (None, b"", b"value %d " % number * 10, rng.randbytes(rng.randrange(1, 200)), bytes(range(256)))[number % 5]


def _headers(rng: random.Random, number: int) -> Headers:
    several = (("a", b"1"), ("a", b"2"), ("é", rng.randbytes(5)), ("empty", b""), ("none", None))
    return several[: number % 6]
