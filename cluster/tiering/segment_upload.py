"""Upload of one sealed segment: its batches as on disk, verified on the way, and its state."""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from cordwood.archive import segment_state
from cordwood.archive.segment_state import SegmentState
from cordwood.archive.store import ObjectStore, Pace
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Bytes
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.segment import Segment

SMALL_BYTES = 1 << 20
"""Largest segment whose batches are kept in memory between their verification and their upload."""


class PreparedSegment(NamedTuple):
    """A segment that was read whole and verified, ready for the store."""

    segment: Segment
    state: bytes
    state_crc: int
    producers: bytes
    """Producers as of its end, encoded."""
    crc: int
    content: bytes | None
    """Its batches, if they are few."""


async def prepare(
    segment: Segment,
    start_offset: int,
    epochs: LeaderEpochs,
    producers_before: bytes | None,
    producers_at_end: bytes | None,
    run_blocking: RunBlocking,
) -> PreparedSegment:
    """Read a sealed segment, and return its objects for the store. Raises DamagedLog, OutOfResources, DiskFailed.

    It counts in the archive from `start_offset` on, and `producers_before` are those as of there. `producers_at_end` is
    given if the segment replaces others: the log cleaner removes batches, and the state of their producers stays.
    """
    state, crc, content = await run_blocking(_read, segment, start_offset, epochs, producers_before)
    if producers_at_end is not None:
        state = state._replace(producers_encoded=producers_at_end)
    encoded = segment_state.encode(state)
    return PreparedSegment(segment, encoded, crc32c(encoded), state.producers_encoded, crc, content)


async def put(prepared: PreparedSegment, names: tuple[str, str], store: ObjectStore, pace: Pace) -> None:
    """Create the objects of a segment. Raises StoreError, OSError."""
    log_name, state_name = names
    segment, content = prepared.segment, prepared.content
    if content is None:
        await store.put_file(log_name, segment.path, segment.size, pace)
    else:
        await pace(len(content))
        await store.put(log_name, content)
    await store.put(state_name, prepared.state)


def _read(
    segment: Segment, start_offset: int, epochs: LeaderEpochs, producers_before: bytes | None
) -> tuple[SegmentState, int, bytes | None]:
    """Return the state of a segment, the CRC-32C of its batches, and its batches if they are few. Blocks."""
    crc, kept, is_small = 0, list[Bytes](), segment.size <= SMALL_BYTES

    def pieces() -> Iterator[tuple[int, Bytes]]:
        nonlocal crc
        for position, piece in segment.pieces(0, segment.size):
            crc = crc32c(piece, crc)
            if is_small:
                kept.append(piece)
            yield position, piece

    state = segment_state.state_of(segment, epochs, producers_before, start_offset, pieces())
    return state, crc, b"".join(kept) if is_small else None
