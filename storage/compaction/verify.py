"""Verification of a compacted log on disk: below the clean end, each key has one record.

Keys are held as 128-bit hashes, KEYS_MAX at a time: a log with more keys is read several times.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from cordwood.storage.disk import Disk
from cordwood.storage.errors import CorruptBatch, DamagedLog
from cordwood.storage.records import RecordCursor
from cordwood.storage.segment_files import segment_path
from cordwood.storage.state import load as load_state
from cordwood.storage.verify import dump_segment, segments_in

KEYS_MAX = 1 << 20
"""Keys in memory, some 200 bytes each."""
FINDINGS_MAX = 100
"""Findings of one log, the first ones."""


class _Keyed(NamedTuple):
    """A record's place and key: None if it has none."""

    path: str
    position: int
    offset: int
    key: bytes | None


def verify_compacted(disk: Disk, directory: str, keys_max: int = KEYS_MAX) -> Iterator[DamagedLog]:
    """Yield the records below the clean end that the log cleaner should have removed. Writes nothing. Raises OSError.

    Damage is passed over: `verify_partition` finds it.
    """
    yield from islice(_needless(disk, directory, keys_max), FINDINGS_MAX)


def _needless(disk: Disk, directory: str, keys_max: int) -> Iterator[DamagedLog]:
    known = load_state(disk, directory)
    start, end = known.log_start, known.clean_end
    while start < end:
        # The keys of the records from `start` to `held_end` are held, and compared with all later ones.
        held, held_end = dict[bytes, int](), end
        for path, position, offset, key in _records(disk, directory, start, end):
            if key is None:
                if offset < held_end:
                    yield DamagedLog(path, position, f"the record at offset {offset} has no key")
                continue
            digest = blake2b(key, digest_size=16).digest()
            if (earlier := held.get(digest)) is not None:
                what = f"the record at offset {offset} has the key of the one at offset {earlier}, which is not removed"
                yield DamagedLog(path, position, what)
            if offset < held_end:
                held[digest] = offset
                if len(held) >= keys_max:
                    held_end = offset + 1
        start = held_end


def _records(disk: Disk, directory: str, start: int, end: int) -> Iterator[_Keyed]:
    """Yield the records from `start` up to `end`, without markers."""
    for name in segments_in(disk, directory):
        path = segment_path(directory, *name)
        if name.base_offset >= end:
            return
        with closing(disk.open(path)) as file, suppress(DamagedLog):
            for _, position, header in dump_segment(disk, path):
                if header.base_offset < end and header.end > start and not header.is_control:
                    yield from _keyed(path, position, file.pread(header.size, position), start, end)


def _keyed(path: str, position: int, batch: bytes, start: int, end: int) -> Iterator[_Keyed]:
    with suppress(CorruptBatch):
        for record in RecordCursor(batch).records():
            if start <= record.offset < end:
                yield _Keyed(path, position, record.offset, record.key)
