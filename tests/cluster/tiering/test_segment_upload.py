"""Preparation of an upload: one read gives a sealed segment's checksum, its state, and a small one's batches."""

import asyncio
from collections.abc import Callable

import pytest
from crc32c import crc32c
from log_fixture import log_with_transactions

from cordwood.archive.segment_state import encode, state_of
from cordwood.cluster.tiering import segment_upload
from cordwood.cluster.tiering.segment_upload import PreparedSegment, prepare
from cordwood.storage import segment as storage_segment
from cordwood.storage.disk import Bytes
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.segment import Segment


async def run_here(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def prepared(segment: Segment, epochs: LeaderEpochs) -> PreparedSegment:
    return asyncio.run(prepare(segment, 0, epochs, None, None, run_here))


@pytest.mark.parametrize("is_small", [True, False])
def test_a_segment_is_read_once_for_its_checksum_and_its_state(
    monkeypatch: pytest.MonkeyPatch, *, is_small: bool
) -> None:
    log = log_with_transactions()
    segment = log.log.segments[0]
    content = bytes(segment.read(0, segment.size))
    expected = encode(state_of(segment, log.log.epochs, None))
    monkeypatch.setattr(storage_segment, "SCAN_BYTES", 100)
    monkeypatch.setattr(segment_upload, "SMALL_BYTES", segment.size if is_small else segment.size - 1)
    reads: list[tuple[int, int]] = []
    read = Segment.read

    def noted(self: Segment, start: int, stop: int, *, wait: bool = True) -> Bytes:
        reads.append((start, stop))
        return read(self, start, stop, wait=wait)

    monkeypatch.setattr(Segment, "read", noted)
    made = prepared(segment, log.log.epochs)
    assert len(reads) > 1
    assert [0, *(stop for _, stop in reads)] == [*(start for start, _ in reads), segment.size]
    assert (made.crc, made.state, made.state_crc) == (crc32c(content), expected, crc32c(expected))
    assert made.content == (content if is_small else None)
