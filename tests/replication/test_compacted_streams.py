"""Replication of a compacted log: the leader names what may have gaps, and a follower takes gaps nowhere else."""

import asyncio
from itertools import pairwise

import pytest
from compacted_log import odd, rewritten_in
from peer_fixture import FollowerFixture, LeaderFixture
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication.frames import PushKind, PushRow, decode_push
from cordwood.storage.batch import headers, stamp
from cordwood.storage.compaction.swap import swap
from cordwood.storage.config import LogConfig

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=200)


def at(offset: int) -> bytes:
    """Return a batch as a leader stamps it."""
    batch = batch_of("a")
    [header] = headers(batch)
    return stamp(header, offset, 1) + batch[16:]


def test_a_leader_names_compacted_segments() -> None:
    async def scenario() -> None:
        broker = LeaderFixture(SMALL)
        log = broker.lead(0).log
        for number in range(30):
            broker.produce(f"{number:02}")
        assert len(log.segments) > 3
        old = log.segments[:2]
        swap(log, old, rewritten_in(log, "/work", old, odd))
        broker.follow(0)
        await asyncio.sleep(0.5)
        rows = [pair for frame in broker.channel.take() for pair in decode_push(frame) if pair[0].size]
        gaps = {row.kind: _gaps(bytes(data)) for row, data in rows}
        assert gaps[PushKind.DATA_WITH_GAPS] > 0
        assert gaps[PushKind.DATA] == 0

    run(scenario())


@pytest.mark.parametrize(("kind", "end"), [(PushKind.DATA_WITH_GAPS, 8), (PushKind.DATA, 0)])
def test_a_follower_takes_gaps_of_compacted_segments_alone(kind: PushKind, end: int) -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition = broker.follow(0)
        await asyncio.sleep(0.2)
        [row] = broker.asked()
        data = at(3) + at(7)
        broker.answer(PushRow(row.stream, kind, 0, 0, len(data)), data=data)
        await asyncio.sleep(0)
        assert partition.log.log_end == end

    run(scenario())


def _gaps(data: bytes) -> int:
    batches = headers(data)
    return sum(later.base_offset > before.end for before, later in pairwise(batches))
