"""Range reads of committed batches from any replica of a partition, for repair by refetch."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from cordwood.replication.channel import Channel, Chunk, Dial
from cordwood.replication.frames import (
    MalformedFrame,
    Open,
    PushKind,
    PushRow,
    ReadRequest,
    decode_push,
    encode_push,
    encode_read,
)
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.slices import Slice

READ_BYTES_MAX = 1 << 20
"""Bytes requested at a time; a single batch may be larger."""
DIAL_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 10.0
WITHOUT_STREAM = 0
COMPACT_FIRST = 0
"""Size in a request that has a replica compact its log: the requester cannot use its batches before that."""

Address = tuple[str, int]


class RangeUnavailable(Exception):
    """The other replica does not have the range, or does not answer."""


class RangeServer:
    """Server of range reads. Committed batches are the same in every replica, so the role does not matter."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._answering: set[Channel] = set()
        self._tasks = Tasks()

    def answer(self, channel: Channel, read: ReadRequest) -> None:
        """Push one answer. Raises MalformedFrame if the answer before is still due."""
        if channel in self._answering:
            raise MalformedFrame("a request before the response to the previous one")
        self._answering.add(channel)
        answering = self._tasks.spawn(self._answer(channel, read))
        answering.add_done_callback(lambda _: self._answering.discard(channel))

    async def _answer(self, channel: Channel, read: ReadRequest) -> None:
        partition = self._replicas.with_id(read.topic_id, read.partition)
        row, chunks = PushRow(WITHOUT_STREAM, PushKind.REFUSED, 0, 0), list[Chunk]()
        if partition is not None and not partition.is_offline:
            try:
                row, chunks = await self._read(partition, read)
            except DamagedLog as damage:
                partition.report_damage(damage)
            except (StorageError, OSError):
                # The requester tries another replica.
                pass
        channel.push([encode_push([row], row.size), *chunks])

    async def _read(self, partition: Partition, read: ReadRequest) -> tuple[PushRow, list[Chunk]]:
        log, watermark = partition.log, partition.high_watermark
        # As of now: a round may end during the read, and raise it.
        clean_end = log.clean_end
        if read.size == COMPACT_FIRST:
            partition.must_be_compacted = True
        if not log.log_start <= read.offset < watermark:
            return PushRow(WITHOUT_STREAM, PushKind.REFUSED, watermark, clean_end), []
        size_max = min(max(read.size, 0), READ_BYTES_MAX)
        run_blocking = partition.directory.run_blocking
        found: Slice | None = await run_blocking(log.slice, read.offset, size_max, watermark)
        if found is None:
            return PushRow(WITHOUT_STREAM, PushKind.REFUSED, watermark, clean_end), []
        return PushRow(WITHOUT_STREAM, PushKind.DATA, watermark, clean_end, found.size), [found]


class RangeReader:
    """Client of range reads, with one connection per broker. Leaving the `async with` closes the connections."""

    def __init__(
        self,
        address_of: Callable[[int], Address | None],
        hello: Callable[[], Open],
        dial: Dial,
        dial_timeout_s: float = DIAL_TIMEOUT_S,
    ) -> None:
        self._address_of, self._hello, self._dial = address_of, hello, dial
        self._dial_timeout_s = dial_timeout_s
        self._connections: dict[int, _Connection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for broker_id in list(self._connections):
            self._connections.pop(broker_id).close()

    async def read(self, broker_id: int, partition: Partition, offset: int, compacted_to: int = 0) -> bytes:
        """Return that broker's committed batches from the one with `offset` on.

        Raises RangeUnavailable, also if its log is not compacted up to `compacted_to`: then it is asked to compact it.
        """
        data, clean_end = await self._read(broker_id, partition, offset, READ_BYTES_MAX)
        if clean_end < compacted_to:
            await self._read(broker_id, partition, offset, COMPACT_FIRST)
            raise RangeUnavailable(f"its log is compacted up to {clean_end}, and {compacted_to} is needed")
        return data

    async def _read(self, broker_id: int, partition: Partition, offset: int, size: int) -> tuple[bytes, int]:
        """Return batches, and the clean end of the log that they come from. Raises RangeUnavailable."""
        question = encode_read(self._hello(), ReadRequest(partition.topic_id, partition.index, offset, size))
        try:
            connection = self._connections.get(broker_id) or await self._connect(broker_id)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                row, data = await connection.ask(question)
        except (OSError, TimeoutError, MalformedFrame) as error:
            if (failed := self._connections.pop(broker_id, None)) is not None:
                failed.close()
            raise RangeUnavailable(f"broker {broker_id} did not answer: {error!r}") from error
        if row.kind != PushKind.DATA or not data:
            raise RangeUnavailable(f"broker {broker_id} has no committed batch with offset {offset}")
        return data, row.second

    async def _connect(self, broker_id: int) -> "_Connection":
        address = self._address_of(broker_id)
        if address is None:
            raise OSError("its address is unknown")
        connection = _Connection()
        async with asyncio.timeout(self._dial_timeout_s):
            connection.begin(await self._dial(*address, connection.received))
        self._connections[broker_id] = connection
        return connection


class _Connection:
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[PushRow, bytes]] | None = None
        self._channel: Channel | None = None

    def begin(self, channel: Channel) -> None:
        self._channel = channel
        channel.on_closed = self._closed

    async def ask(self, question: bytes) -> tuple[PushRow, bytes]:
        """Send a request and return its answer. Raises ConnectionResetError."""
        assert self._channel is not None, "it has begun"
        if not self._channel.is_open:
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        self._channel.push([question])
        return await self._answer

    def received(self, frame: memoryview) -> None:
        """Handle one answer. Raises MalformedFrame."""
        rows = decode_push(frame)
        if len(rows) != 1 or self._answer is None or self._answer.done():
            raise MalformedFrame("a response without a request")
        row, data = rows[0]
        self._answer.set_result((row, bytes(data)))

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _closed(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())
