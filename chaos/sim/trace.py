"""What happened in a simulated run, as one number: two runs with the same hash did the same, byte by byte."""

import hashlib
import struct

_TIME = struct.Struct("<d").pack


class Trace:
    """A hash over everything that happens, in order: time going by, what arrives, what is synced, what is applied."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self._update = self._hash.update

    def time_passed(self, now_s: float) -> None:
        self._update(_TIME(now_s))

    def arrived(self, host: str, data: bytes) -> None:
        self._update(host.encode())
        self._update(data)

    def happened(self, what: str) -> None:
        """Anything else, in words: `synced`, `applied`, a fault."""
        self._update(what.encode())

    def hexdigest(self) -> str:
        """16 hexadecimal digits."""
        return self._hash.hexdigest()
