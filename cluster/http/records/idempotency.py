"""Idempotency-Key: each key is an idempotent producer that sends a single batch.

The leader of a partition recognizes the batches of such a producer by number, across restarts and failover (KIP-98): a
duplicate is answered with the offset of the first, and is not appended. A key has the same producer id on every broker,
and the sequence number is a hash of the request's content (docs/adr/0018).
"""

import hashlib

from cordwood.cluster.http.records.accumulator import Once
from cordwood.storage.producers import FIRST_OF_ONE_BATCH

KEY_CHARS_MAX = 255


def once_of(key: str, content: bytes) -> Once:
    """Return the producer id and sequence of a request with this key and content."""
    return Once(FIRST_OF_ONE_BATCH | _hash(key.encode(), 62), _hash(content, 31))


def _hash(content: bytes, bits: int) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> (64 - bits)
