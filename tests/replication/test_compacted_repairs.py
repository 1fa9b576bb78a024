"""Repairs of compacted logs from replicas that are compacted less: no deleted key comes back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from cleaner_fixture import COMPACTED, UNLIMITED, CleanerFixture
from replica_fixture import ME
from virtual_time import run

from cordwood.replication import frames
from cordwood.replication.channel import Chunk
from cordwood.replication.frames import Open
from cordwood.replication.range_reads import RangeReader, RangeServer, RangeUnavailable
from cordwood.replication.segment_refetch import refetch
from cordwood.storage.batch import peek
from cordwood.storage.compaction.lost_offsets import lost_end_in, lost_end_of
from cordwood.storage.records import Record, encode
from cordwood.storage.slices import Slice

OTHER = 2


class Wire:
    """One direction of a connection: `deliver` gets the frames."""

    is_open = True
    on_closed: Callable[[], None] | None = None

    def __init__(self, deliver: Callable[[memoryview], None]) -> None:
        self._deliver = deliver

    def push(self, chunks: list[Chunk]) -> None:
        frame = b"".join(chunk if isinstance(chunk, bytes) else _bytes_of(chunk) for chunk in chunks)
        asyncio.get_running_loop().call_soon(self._deliver, memoryview(frame)[4:])

    def close(self, _reason: str | None = None) -> None: ...


def _bytes_of(chunk: Slice) -> bytes:
    found = b""
    while chunk.size:
        found += bytes(chunk.next_piece())
    return found


def reader_of(broker: CleanerFixture) -> RangeReader:
    """Return a reader of another broker's replicas."""
    server = RangeServer(broker.replicas)

    async def dial(_host: str, _port: int, received: Callable[[memoryview], None]) -> Wire:
        answers = Wire(received)
        return Wire(lambda frame: server.answer(answers, frames.decode_read(frame)[1]))  # type: ignore[arg-type]

    return RangeReader(lambda _: ("other", 1), lambda: Open(ME, UUID(int=9), 1, "a cluster"), dial)  # type: ignore[arg-type]


async def filled(ratio: float = 0.0) -> CleanerFixture:
    """Return a broker with a key, its tombstone in a later segment, and other records."""
    broker = CleanerFixture(replace(COMPACTED, min_cleanable_dirty_ratio=ratio))
    await broker.put(("gone", "v" * 50), *((f"k{number}", "v" * 50) for number in range(8)))
    await broker.put(("gone", None), *((f"l{number}", "v" * 50) for number in range(8)))
    return broker


async def compacted(broker: CleanerFixture, rounds: int = 3) -> None:
    """Compact until tombstones are gone."""
    for number in range(rounds):
        broker.now_ms += COMPACTED.delete_retention_ms + 1
        await broker.put(*((f"m{number}", f"{at}") for at in range(9)))
        await asyncio.sleep(UNLIMITED.backoff_s)
        assert await broker.cleaner.clean_due() > 0


def damage_first(broker: CleanerFixture) -> None:
    segment = broker.partition().log.segments[0]
    broker.disk.flip(segment.path, 70, 3)


async def repair(broker: CleanerFixture, other: CleanerFixture) -> bool:
    partition = broker.partition()
    async with reader_of(other) as reader:
        return await refetch(partition, partition.log.segments[0], [OTHER], reader)


def test_a_deleted_key_does_not_come_back_with_a_repair() -> None:
    async def scenario() -> None:
        broker, other = await filled(), await filled(ratio=1.0)
        await compacted(broker)
        for number in range(3):
            await other.put(*((f"m{number}", f"{at}") for at in range(9)))
        assert "gone" not in dict(broker.contents())
        assert ("gone", "v" * 50) in other.contents()
        damage_first(broker)
        with pytest.raises(RangeUnavailable, match="compacted up to 0"):
            await repair(broker, other)
        # The other replica compacts its log for that, whatever its ratio.
        other.now_ms = broker.now_ms
        assert other.partition().must_be_compacted
        assert await other.cleaner.clean_due() > 0
        assert await repair(broker, other)
        assert "gone" not in dict(broker.contents())
        await compacted(broker, rounds=1)
        assert "gone" not in dict(broker.contents())
        assert {key for key, _ in broker.contents()} >= {f"k{number}" for number in range(8)}

    run(scenario())


def test_a_log_that_has_lost_nothing_is_repaired_from_any_replica() -> None:
    async def scenario() -> None:
        broker, other = await filled(), await filled()
        before = broker.contents()
        damage_first(broker)
        assert lost_end_in(broker.partition().log.segments[1:]) == 0
        assert await repair(broker, other)
        assert broker.contents() == before

    run(scenario())


def test_lost_offsets_are_those_between_and_within_batches() -> None:
    def header(base: int, count: int, span: int) -> object:
        batch = encode([Record(number, 0, b"k", b"v") for number in range(count)], base_offset=base)
        return peek(batch)._replace(last_offset_delta=span - 1)

    assert lost_end_of([header(0, 2, 2), header(2, 1, 1)], 0) == 0  # type: ignore[list-item]
    assert lost_end_of([header(0, 2, 2), header(3, 1, 1), header(4, 1, 1)], 0) == 4  # type: ignore[list-item]
    assert lost_end_of([header(0, 2, 3), header(3, 1, 1)], 0) == 3  # type: ignore[list-item]
    assert lost_end_of([header(1, 1, 1)], 0) == 2  # type: ignore[list-item]
