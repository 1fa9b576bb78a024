"""Slices of a log that can no longer be read once their response has begun: the connection closes."""

import asyncio
from collections.abc import Callable

import pytest
from log_fixture import LogFixture
from replica_fixture import NOW_MS, ReplicaFixture

from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.in_process import InProcess, InProcessChannel
from cordwood.replication.channel import ReadPiece
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DamagedLog
from cordwood.storage.log import Log
from cordwood.storage.slices import Slice

REQUEST = b"\0\0\0\x0a" + b"\0\x03\0\x01\0\0\0\x07\xff\xff"
VALUES = [str(number) * 300 for number in range(4)]


class Reader:
    """A client with one request, whose response the test gives."""

    def __init__(self, read_piece: ReadPiece) -> None:
        scheduler = EndOfTickScheduler(asyncio.get_running_loop())
        self.connections: list[Connection] = []
        self.slots: list[Slot] = []
        self.damage: list[DamagedLog] = []
        here = InProcess(scheduler, read_piece, self.damage.append, 1 << 20)
        self.received = bytearray()
        self.channel: InProcessChannel = here.open("PLAINTEXT", self._handle, self.received.extend)
        self.channel.push([REQUEST])

    def answer(self, found: Slice) -> None:
        self.slots[0].fill([found.size.to_bytes(4, "big"), found])

    @property
    def connection(self) -> Connection:
        return self.connections[0]

    def _handle(self, connection: Connection, _frame: memoryview, slot: Slot) -> None:
        self.connections.append(connection)
        self.slots.append(slot)


async def closed(reader: Reader) -> bool:
    async with asyncio.timeout(10):
        while reader.channel.is_open:
            await asyncio.sleep(0)
    return not reader.connection.is_open


def all_of(log: Log) -> Slice:
    found = log.slice(0, 1 << 20, log.log_end)
    assert found is not None
    return found


def damaged() -> DamagedLog:
    return DamagedLog("/data/file", 0, "for a test")


@pytest.mark.parametrize(
    "error", [lambda: OSError(5, "an error"), lambda: RuntimeError("can't start new thread"), damaged]
)
def test_a_piece_that_cannot_be_read_closes_its_connection(error: Callable[[], Exception]) -> None:
    async def story() -> None:
        async def read_piece(_: Slice) -> Bytes:
            raise error()

        log = LogFixture().append(*VALUES).flush()
        found = all_of(log.log)
        log.disk.cool()
        reader = Reader(read_piece)
        reader.answer(found)
        assert await closed(reader)
        assert len(reader.damage) == isinstance(error(), DamagedLog)

    asyncio.run(story())


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_deposed_leaders_connection_with_slices_of_what_was_cut_is_closed_and_the_log_goes_on(is_cold: bool) -> None:
    async def story() -> None:
        broker = ReplicaFixture()
        await broker.produce_and_flush(*VALUES)
        log = broker.partition().log
        reader, other = Reader(broker.replicas.read_piece), Reader(broker.replicas.read_piece)
        reader.connection.pause_writing()
        reader.answer(all_of(log))
        await broker.turn()
        assert reader.received == b""
        log.truncate(2)
        pending = log.begin_flush()
        for syncable in (*pending.files, *pending.directories):
            syncable.sync()
        log.flushed(pending)
        broker.partition().append(batch_of("later"), NOW_MS)
        if is_cold:
            broker.disk.cool()
        reader.connection.resume_writing()
        assert await closed(reader)
        assert reader.received == b""
        assert reader.damage == []
        found = all_of(log)
        expected = bytes(log.segments[0].read(0, log.segments[0].size))
        other.answer(found)
        async with asyncio.timeout(10):
            while len(other.received) < len(expected):
                await asyncio.sleep(0)
        assert other.received == expected
        assert broker.failed == []

    asyncio.run(story())
