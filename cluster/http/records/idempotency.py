"""What an Idempotency-Key becomes: the numbers of an idempotent producer that sends a single batch.

The leader of a partition knows the batches of such producers by number, across restarts and failover (KIP-98): one
that is sent again is answered with the offset that it has had since the first time, and is not appended. So a key has
the same producer id on every broker, and the sequence number stands for what the request held (docs/adr/0018).
"""

import hashlib

from cordwood.cluster.http.records.accumulator import Once
from cordwood.storage.producers import FIRST_OF_ONE_BATCH

KEY_CHARS_MAX = 255


def once_of(key: str, content: bytes) -> Once:
    """The numbers for a request with this key and content."""
    return Once(FIRST_OF_ONE_BATCH | _hash(key.encode(), 62), _hash(content, 31))


def _hash(content: bytes, bits: int) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> (64 - bits)
