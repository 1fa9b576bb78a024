"""A broker's replicas with a log cleaner over a simulated disk."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from replica_fixture import NOW_MS, ReplicaFixture, housekeeping_of

from cordwood.replication.log_cleaner import CleanerLimits, LogCleaner
from cordwood.storage.batch import split
from cordwood.storage.config import LogConfig
from cordwood.storage.records import Record, decode, encode

COMPACTED = LogConfig(segment_bytes=400, compacted=True, deletable=False, min_cleanable_dirty_ratio=0.0)
UNLIMITED = CleanerLimits(threads=1, buffer_bytes=1 << 20, bytes_per_second=1e12, backoff_s=15.0)
KEYS = ("a", "b", "c")


class CleanerFixture(ReplicaFixture):
    """A broker's replicas with a log cleaner, whose work in threads `at_step` may disturb."""

    def __init__(self, config: LogConfig = COMPACTED, limits: CleanerLimits = UNLIMITED) -> None:
        self.at_step: Callable[[str], None] = lambda _name: None
        super().__init__(config, run_blocking=self._blocking)
        self.now_ms = NOW_MS
        self.limits = limits
        self.start_cleaner()

    def start_cleaner(self) -> None:
        self.log_maintenance = housekeeping_of(self, lambda: self.now_ms)
        self.cleaner = LogCleaner(
            self.replicas,
            self.log_maintenance,
            lambda: self.now_ms,
            lambda: self.limits,
            random.Random(1),
            {"internal": lambda batches: batches},
        )

    async def _blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        self.at_step(getattr(function, "__name__", ""))
        return function(*arguments)

    async def put(self, *pairs: tuple[str, str | None], topic: str = "t") -> None:
        """Append a batch for each key and value, and flush them."""
        for key, value in pairs:
            record = Record(0, self.now_ms, key.encode(), None if value is None else value.encode())
            self.partition(topic=topic).append(encode([record]), self.now_ms)
        await self.flushed()

    async def flushed(self) -> None:
        """Complete the group commits under way."""
        for _ in range(3):
            await self.turn()
            self.let_go()

    async def fill(self, rounds: int = 20, keys: Sequence[str] = KEYS) -> None:
        await self.put(*((key, f"{number}") for number in range(rounds) for key in keys))

    def contents(self, topic: str = "t") -> list[tuple[str, str | None]]:
        """Return key and value of each record that is left."""
        log = self.partition(topic=topic).log
        batches = [batch for segment in log.segments for batch in split(bytes(segment.read(0, segment.size)))]
        return [
            ((record.key or b"").decode(), None if record.value is None else record.value.decode())
            for batch in batches
            for record in decode(batch)
        ]

    def below(self, end: int) -> list[bytes]:
        """Return the batches that begin below an offset, as they are."""
        segments = self.partition().log.segments
        batches = [bytes(batch) for segment in segments for batch in split(bytes(segment.read(0, segment.size)))]
        return [batch for batch in batches if int.from_bytes(batch[:8], "big") < end]

    def values(self, topic: str = "t") -> dict[str, str | None]:
        return dict(self.contents(topic))

    def files(self) -> list[str]:
        return sorted(path for path in self.disk.files() if path.endswith(".log") and "/topics/" in path)
