"""The trace hash of a simulated run: two runs with the same hash did the same, byte by byte."""

import hashlib
import struct

_TIME = struct.Struct("<d").pack
PENDING_BYTES_MAX = 64 << 10


class Trace:
    """A hash over all events in order: passage of time, received data, syncs, faults and metadata indexes."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self._pending = bytearray()
        """Bytes that are not hashed yet. Large pieces are cheaper than many small ones."""

    def time_passed(self, now_s: float) -> None:
        self._pending += _TIME(now_s)

    def arrived(self, host: str, data: bytes) -> None:
        self._pending += host.encode()
        self._pending += data
        if len(self._pending) > PENDING_BYTES_MAX:
            self._digest()

    def happened(self, what: str) -> None:
        """Add any other event: a synced path, a metadata index, a fault."""
        self._pending += what.encode()

    def hexdigest(self) -> str:
        """Return the hash as 16 hexadecimal digits."""
        self._digest()
        return self._hash.hexdigest()

    def _digest(self) -> None:
        self._hash.update(self._pending)
        self._pending.clear()
