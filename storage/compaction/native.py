"""Table of last offsets by key in C: see `record_filter.c` for its layout."""

import struct
from array import array
from mmap import mmap

from cordwood.storage.batch import CODEC_MASK, peek, put_checksum
from cordwood.storage.compaction import record_filter
from cordwood.storage.compaction.rules import OTHER_KINDS, Rules, Sifted
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

_HEAD = struct.Struct("=16sqqQQQQ")
_END = struct.Struct("=24xq")
_USED = struct.Struct("=40xQ8xQ")
_ENTRY_BYTES = 16
_LOAD_MAX = (17, 20)
"""Share of the slots that is used at most. A search for a key that is not there then takes some 20 steps."""
_SLOTS_MAX = (1 << 32) - 1
_GROWTH = 2.5
"""A record of at least 7 bytes grows by 10 at most."""
_BATCH_BYTES_MIN = 61


class NativeTable:
    """Table of the last offsets of keys: 16 bytes a slot, whatever the keys' lengths."""

    def __init__(self, bytes_max: int, start: int, limit: int, seed: bytes) -> None:
        used, of = _LOAD_MAX
        slots = max(min(bytes_max // _ENTRY_BYTES, (limit - start) * of // used + 2, _SLOTS_MAX), 2)
        self.keys_max = max(slots * used // of, 1)
        # All zero. Memory is taken as it is written to: to zero it here would hold the interpreter's lock for long.
        self._table = mmap(-1, _HEAD.size + slots * _ENTRY_BYTES)
        _HEAD.pack_into(self._table, 0, seed, start, start, slots, 0, self.keys_max, 0)
        self._out = bytearray()
        self._rewritten = array("I")

    def __len__(self) -> int:
        return int(_USED.unpack_from(self._table)[0])

    @property
    def is_full(self) -> bool:
        return bool(_USED.unpack_from(self._table)[1])

    @property
    def end(self) -> int:
        return int(_END.unpack_from(self._table)[0])

    @end.setter
    def end(self, end: int) -> None:
        struct.pack_into("=q", self._table, 24, end)

    def get(self, key: bytes) -> int | None:
        return record_filter.get(self._table, key)

    def put(self, data: Bytes, position: int) -> int:
        return self._put(data, position, OTHER_KINDS)

    def put_batch(self, batch: Bytes) -> None:
        self._put(batch, 0, CODEC_MASK)

    def sift(self, data: Bytes, position: int, rules: Rules) -> Sifted:
        return self._sift(data, position, rules, OTHER_KINDS)

    def sift_batch(self, batch: Bytes, rules: Rules) -> Sifted:
        return self._sift(batch, 0, rules, CODEC_MASK)

    def _put(self, data: Bytes, position: int, other_kinds: int) -> int:
        try:
            return record_filter.put(self._table, data, position, other_kinds)
        except ValueError as error:
            raise CorruptBatch(str(error)) from error

    def _sift(self, data: Bytes, position: int, rules: Rules, other_kinds: int) -> Sifted:
        size = len(data) - position
        if len(self._out) < _GROWTH * size:
            self._out = bytearray(int(_GROWTH * size) + 1)
            self._rewritten = array("I", bytes(4 * (size // _BATCH_BYTES_MIN + 1)))
        try:
            end, written, rewritten, read, kept = record_filter.sift(
                self._table,
                data,
                position,
                other_kinds,
                self._out,
                self._rewritten,
                rules.needed,
                rules.end,
                rules.now_ms,
                rules.horizon_ms,
            )
        except ValueError as error:
            raise CorruptBatch(str(error)) from error
        for place in self._rewritten[:rewritten]:
            put_checksum(self._out, place, place + peek(self._out, place).size)
        with memoryview(self._out) as out:
            return Sifted(end, bytes(out[:written]), read, kept)
