"""The audit log of a broker: events wait in memory, and a task writes them in batches.

An event is written soon, and not before its request is answered: a slow disk delays no request. What cannot wait in
memory is counted, and a line with the count takes its place.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import structlog

from cordwood.cluster.security.audit.event import AuditEvent
from cordwood.cluster.security.audit.files import AuditFiles
from cordwood.cluster.security.principal import Identity
from cordwood.replication.tasks import RunBlocking, Tasks

WAITING_MAX = 10_000
"""Lines in memory. Later ones are counted as lost."""
REFUSALS_WAITING_MAX = 5_000
"""Lines in memory with which refusals still get in: a flood of them takes no room from administrative acts."""
ALIKE_MAX = 1_000
"""Kinds of refusals that are counted apart at once; the others are counted together."""
ALIKE_PER_INTERVAL = 5
"""Kinds that become free again in each interval: a client that fails under ever new names must not fill the files, of
which the oldest are removed. One GiB lasts for more than a day of that."""
INTERVAL_S = 1.0
"""The interval in which equal refusals are counted together."""
BATCH_MAX = 1_000
RETRY_S = 1.0

_events = structlog.get_logger("audit")


Publish = Callable[[Sequence[bytes]], None]
"""Passes on lines that are in the file, for the audit topic. Does not wait."""


class AuditSink(Protocol):
    """What takes note of audit events."""

    def note(self, event: AuditEvent) -> None: ...


class NoAudit:
    """The audit log of a broker that has none."""

    written = waiting = lost = 0
    publish: Publish | None = None

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def note(self, _event: AuditEvent) -> None:
        """Do nothing."""


NO_AUDIT = NoAudit()


class AuditLog:
    """The audit log of one broker. `start` before the first event, `close` after the last."""

    def __init__(
        self,
        open_files: Callable[[], AuditFiles],
        broker_id: int,
        run_blocking: RunBlocking,
        wall_clock: Callable[[], int],
    ) -> None:
        self._open_files, self._broker_id = open_files, broker_id
        self._run_blocking, self._wall_clock = run_blocking, wall_clock
        self.publish: Publish | None = None
        self._files: AuditFiles | None = None
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._alike: Counter[tuple[str, ...]] = Counter()
        self._last_alike: dict[tuple[str, ...], AuditEvent] = {}
        self._others = 0
        self._free = ALIKE_MAX
        """Kinds of refusals that may still be counted apart."""
        self.lost = 0
        """Events that found no room in memory, since the start."""
        self.written = 0
        """Lines written since the start."""
        self._unreported = 0
        self.error = ""
        """Why the last write failed; empty if it did not."""
        self._arrived = asyncio.Event()
        self._tasks = Tasks()
        self._writing: asyncio.Task[bool] | None = None

    @property
    def waiting(self) -> int:
        """The number of lines in memory."""
        return len(self._waiting)

    async def start(self) -> None:
        """Open the files, and continue their chain. Raises OSError."""
        self._files = await self._run_blocking(self._open_files)
        self._note_start(self._files)
        self._tasks.repeat(self._write, "audit: write")
        self._tasks.repeat(self._count, "audit: count refusals")

    async def close(self) -> None:
        """Write what waits, once, and close the files."""
        await self._tasks.close()
        if self._files is not None:
            if self._writing is not None:
                await asyncio.wait([self._writing])
            self._count_alike()
            while self._waiting and await self._write_batch(self._files):
                pass
            await self._run_blocking(self._files.close)

    def note(self, event: AuditEvent) -> None:
        """Take note of an event. The first refusal of an interval gets its own line, the rest are counted."""
        if event.is_refusal:
            alike = event.alike
            if alike in self._alike:
                self._alike[alike] += 1
                self._last_alike[alike] = event
                return
            if not self._free:
                self._others += 1
                return
            self._free -= 1
            self._alike[alike] = 0
        self._add(event)

    def _add(self, event: AuditEvent, count: int = 1) -> None:
        if len(self._waiting) >= (REFUSALS_WAITING_MAX if event.is_refusal else WAITING_MAX):
            self.lost += 1
            self._unreported += 1
            return
        self._waiting.append(event.fields(self._wall_clock(), self._broker_id, count))
        self._arrived.set()

    def _note_start(self, files: AuditFiles) -> None:
        detail = f"{files.cut_off_bytes} bytes of an incomplete last line were removed" if files.cut_off_bytes else ""
        self._add(AuditEvent("AUDIT_BEGINS", Identity(), "", detail=detail))
        _events.info("audit.begins", last_line=files.last.sequence, last_hash=files.last.hash)

    async def _count(self) -> None:
        await asyncio.sleep(INTERVAL_S)
        self._count_alike()

    def _count_alike(self) -> None:
        """End an interval: add a line for each kind of refusal that repeated."""
        alike, last, others = self._alike, self._last_alike, self._others
        self._alike, self._last_alike, self._others = Counter(), {}, 0
        self._free = min(ALIKE_MAX, self._free + ALIKE_PER_INTERVAL)
        for key, count in alike.items():
            if count:
                self._add(last[key], count)
        if others:
            self._add(AuditEvent("OTHER_REFUSALS", Identity(), "", is_refusal=True), others)

    async def _write(self) -> None:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        assert self._files is not None, "the task begins after the files are open"
        if not await self._write_batch(self._files):
            await asyncio.sleep(RETRY_S)

    async def _write_batch(self, files: AuditFiles) -> bool:
        """Write what waits, up to BATCH_MAX lines. Return False if the disk refuses: the lines stay in memory."""
        # A cancellation does not stop the thread that writes: `close` waits for it.
        self._writing = asyncio.get_running_loop().create_task(self._append(files))
        return await asyncio.shield(self._writing)

    async def _append(self, files: AuditFiles) -> bool:
        if self._unreported and len(self._waiting) < WAITING_MAX:
            lost, self._unreported = self._unreported, 0
            self._add(AuditEvent("AUDIT_LINES_LOST", Identity(), "", detail="there was no room in memory"), lost)
        batch = list(islice(self._waiting, BATCH_MAX))
        try:
            lines = await self._run_blocking(files.append, batch)
        except OSError as error:
            if not self.error:
                _events.error("audit.not_written", error=str(error), waiting=len(self._waiting))
            self.error = str(error)
            return False
        if self.error:
            _events.warning("audit.written_again", waiting=len(self._waiting))
        self.error = ""
        self.written += len(batch)
        for _ in batch:
            self._waiting.popleft()
        if self.publish is not None:
            self.publish(lines)
        return True
