"""`__consumer_offsets` in memory: commits as fast, as slowly or as badly as a story wants."""

import asyncio
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.topic import Bounds
from cordwood.cluster.kafka.call import Refused
from cordwood.storage.batch import peek, split, stamp
from cordwood.storage.errors import DamagedLog
from cordwood.storage.records import Record, decode

BATCHES_PER_READ = 500


@dataclass
class Partition:
    """Batches by base offset."""

    batches: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0


class OffsetsInMemory:
    """The topic. Clear `gate` and nothing is committed, `read_gate` and nothing is read; `refusal` stops writing."""

    def __init__(self, partition_count: int = 4) -> None:
        self.partitions: list[Partition] = []
        self.not_led: set[int] = set()
        self.damaged: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.read_gate = asyncio.Event()
        self.read_gate.set()
        self.refusal: ErrorCode | None = None
        self.appends = 0
        self.reads = 0
        self._partition_count = partition_count

    def partition_count(self) -> int:
        return len(self.partitions)

    async def create(self) -> None:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise Refused(self.refusal)
        if not self.partitions:
            self.partitions = [Partition() for _ in range(self._partition_count)]

    def is_led(self, partition: int) -> bool:
        return partition not in self.not_led

    def bounds(self, partition: int) -> Bounds:
        return Bounds(self.partitions[partition].start, self.partitions[partition].end)

    async def read(self, partition: int, offset: int) -> bytes:
        self.reads += 1
        await asyncio.sleep(0)
        await self.read_gate.wait()
        if partition in self.damaged:
            raise DamagedLog("a segment", 61, "the checksum does not match")
        batches = self.partitions[partition].batches
        return b"".join([batch for batch in batches.values() if peek(batch).end > offset][:BATCHES_PER_READ])

    async def append(self, partition: int, batch: bytes) -> None:
        self.appends += 1
        if self.refusal is not None:
            raise Refused(self.refusal)
        log = self.partitions[partition]
        header = peek(batch)
        stamped = stamp(header, log.end, 0) + batch[16:]
        log.batches[log.end] = stamped
        log.end += header.record_count
        await self.gate.wait()

    def trim(self, partition: int, offset: int) -> None:
        log = self.partitions[partition]
        log.start = offset
        log.batches = {base: batch for base, batch in log.batches.items() if peek(batch).end > offset}

    def records(self, partition: int) -> list[Record]:
        """Those that a reader would be given."""
        log = self.partitions[partition]
        return [
            record
            for data in log.batches.values()
            for batch in split(data)
            for record in decode(batch)
            if record.offset >= log.start
        ]
