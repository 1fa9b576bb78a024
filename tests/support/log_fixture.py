"""A partition's log on a simulated disk, with group commits, checkpoints, retention and power cuts as methods."""

import random
from dataclasses import dataclass, field, replace
from typing import Any, Self
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.batch import TRANSACTIONAL, check, headers, split
from cordwood.storage.config import LogConfig
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.errors import DamagedLog
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.log import Appended
from cordwood.storage.log_loader import open_log
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.state import (
    ArchivedBeginning,
    lower_checkpoint,
    state_of_new_log,
    write_checkpoint,
    write_new_log,
)
from cordwood.storage.truncation_plan import state_before_full_truncation, state_before_truncation
from cordwood.storage.types import ProducerIdAndEpoch

ROOT = "/data"
DIRECTORY = f"{ROOT}/00000000-0000-0000-0000-000000000001-0"
MARKS = f"{ROOT}/marks"
TOPIC_ID = UUID(int=1)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1)
"""A segment holds a few batches, an index interval two or three."""

START_MS = 1_700_000_000_000
ALL_BYTES = 1 << 30


@dataclass
class LogFixture:
    """One log with its disk, and its owner's part in the broker: group commits and checkpoints.

    Values are strings. `append` makes a batch of each value. `now` is the only clock, in milliseconds.
    """

    config: LogConfig = SMALL
    disk: SimulatedDisk = field(default_factory=lambda: SimulatedDisk(random.Random(1)))
    leader_epoch: int = 0
    now: int = START_MS

    def __post_init__(self) -> None:
        self.disk.make_directories(ROOT)
        self.disk.open_directory("/").sync()
        self._open()

    def append(self, *values: str, key: str | None = None, timestamp: int | None = None) -> Self:
        for value in values:
            self.append_batch(value, key=key, timestamp=timestamp)
        return self

    def append_batch(self, *values: str, key: str | None = None, timestamp: int | None = None) -> Appended:
        """Append all values as one batch."""
        return self._append(encode(self._records(values, key, timestamp)))

    def send(
        self, sequence: int, *values: str, producer: int = 7, epoch: int = 0, transactional: bool = False
    ) -> Appended:
        """Append one batch of an idempotent producer."""
        return self._append(
            encode(
                self._records(values, None, None),
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL if transactional else 0,
            )
        )

    def mark(
        self, *, commit: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0, v2: bool = False
    ) -> Appended:
        """Append the marker of a producer's transaction, as a leader does."""
        who, marker = ProducerIdAndEpoch(producer, epoch), EndTransactionMarker(commit, coordinator_epoch)
        self.log.producers.check_marker(who, marker, is_v2=v2)
        batch = encode_marker(who, marker, self.now)
        return self.log.append(batch, check(batch), self.leader_epoch, self.now, marker)

    def commit(self, **options: Any) -> Appended:
        return self.mark(commit=True, **options)

    def abort(self, **options: Any) -> Appended:
        return self.mark(commit=False, **options)

    def last_stable(self, high_watermark: int | None = None) -> int:
        """Return the last stable offset with this high watermark; without it, with all records committed."""
        watermark = self.end if high_watermark is None else high_watermark
        unstable = self.log.producers.transactions.first_unstable(watermark)
        return watermark if unstable is None else min(max(unstable, self.start), watermark)

    def aborted(self, start: int | None = None, end: int | None = None) -> list[tuple[int, int]]:
        """Return producer id and first offset of the aborted transactions in a range, by default the whole log."""
        found = self.log.aborted(self.start if start is None else start, self.end if end is None else end)
        return [tuple(transaction) for transaction in found]

    def flush(self) -> Self:
        """Run one group commit: sync everything appended so far, then record the flushed end."""
        self._sync()
        self._note(self.log.flushed_end)
        return self

    def checkpoint(self) -> Self:
        """Write a recovery checkpoint. A log without segments writes none."""
        if not self.log.segments:
            return self
        self._marks.file.sync()
        state = self.log.state()
        write_checkpoint(self.disk, DIRECTORY, state)
        self.log.checkpoint_written(state)
        return self

    def take_stamped(self, data: bytes) -> Self:
        """Append batches from a leader, as a follower does."""
        self.log.append_stamped(data, headers(data), self.now)
        return self

    def truncate(self, end: int) -> Self:
        # Lower the recorded flushed end first: otherwise a restart takes the cut records for lost. The base offset of
        # the batch that contains `end` is not known yet, so the mark goes to 0.
        self._note(0)
        self._marks.file.sync()
        if end < self.log.log_end and (state := state_before_truncation(self.log, end)) is not None:
            lower_checkpoint(self.disk, DIRECTORY, state)
        self.log.truncate(end)
        return self if self.log.is_flushing else self._sync()

    def truncate_fully(self, offset: int, before: ArchivedBeginning | None = None) -> Self:
        """Drop everything and start at `offset`, as a follower does below the leader's log start."""
        self._note(0)
        self._marks.file.sync()
        if (state := state_before_full_truncation(self.log)) is not None:
            lower_checkpoint(self.disk, DIRECTORY, state)
        self.log.truncate_fully(offset, before)
        self._sync()
        write_new_log(self.disk, DIRECTORY, state_of_new_log(offset, before))
        self.log.begun_anew()
        return self

    def delete_records(self, before: int) -> Self:
        self.log.raise_log_start(before)
        return self

    def retain(self, *, after_ms: int = 0, archived_end: int | None = None) -> int:
        """Advance the clock and run retention, with what the archive has. Return the number of removed segments."""
        self.now += after_ms
        dropped = self.log.drop(self.log.flushed_end, self.now, archived_end)
        self.checkpoint()
        for segment in dropped:
            segment.release()
            for path in segment.paths():
                if self.disk.exists(path):
                    self.disk.remove(path)
        return len(dropped)

    def configure(self, **changes: int | bool) -> Self:
        """Change the topic's configs while the log is in use."""
        self.config = self.log.config = replace(self.config, **changes)  # type: ignore[arg-type]
        return self

    def close(self) -> Self:
        self.log.close()
        return self

    def kill(self) -> Self:
        self.disk.kill()
        return self

    def power_cut(self, *, keep: float | None = None, keep_bytes_of_unsynced: int | None = None) -> Self:
        if keep_bytes_of_unsynced is None:
            self.disk.power_cut(keep)
        else:
            self.disk.power_cut_keeping(keep_bytes_of_unsynced)
        return self

    def reopen(self) -> Self:
        self.disk.kill()
        self._open()
        return self

    @property
    def start(self) -> int:
        return self.log.log_start

    @property
    def end(self) -> int:
        return self.log.log_end

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        return [segment.base_offset for segment in self.log.segments]

    @property
    def damage(self) -> list[DamagedLog]:
        """The damage found when the log was opened."""
        return self.log.damage

    def read(self, offset: int, max_bytes: int = ALL_BYTES, end: int | None = None) -> bytes:
        return self.log.read(offset, max_bytes, self.end if end is None else end)

    def records(self, start: int | None = None, max_bytes: int = ALL_BYTES) -> list[Record]:
        """Read every record from `start` (by default the log start) to the log end, as a polling consumer does."""
        offset = self.start if start is None else start
        found: list[Record] = []
        while data := self.read(offset, max_bytes):
            for batch in split(data):
                found += (record for record in decode(batch) if record.offset >= offset)
            offset = check(batch).end
        return found

    def values(self, start: int | None = None) -> list[str]:
        return [(record.value or b"").decode() for record in self.records(start)]

    def path(self, base_offset: int, suffix: str = "log") -> str:
        """Return the path of a file of the segment with this base offset."""
        return f"{DIRECTORY}/{base_offset:020d}.{suffix}"

    def _open(self) -> None:
        self._marks = FlushedOffsets(self.disk.open(MARKS, create=True))
        self.log = open_log(self.disk, DIRECTORY, self.config, self._marks.get(TOPIC_ID, 0), self.now)

    def _sync(self) -> Self:
        pending = self.log.begin_flush()
        for syncable in (*pending.files, *pending.directories):
            syncable.sync()
        self.log.flushed(pending)
        return self

    def _note(self, flushed_end: int) -> None:
        epoch = self.log.epochs.epoch_at(flushed_end - 1)
        self._marks.mark(TOPIC_ID, 0).note(flushed_end, epoch)

    def _append(self, batch: bytes) -> Appended:
        return self.log.append(batch, check(batch), self.leader_epoch, self.now)

    def _records(self, values: tuple[str, ...], key: str | None, timestamp: int | None) -> list[Record]:
        time = self.now if timestamp is None else timestamp
        return [Record(0, time, key.encode() if key is not None else None, value.encode()) for value in values]


def log_with_transactions() -> LogFixture:
    """Return a log of several segments with transactions over their borders, and another leader epoch."""
    log = LogFixture(SMALL)
    for number in range(12):
        log.now += 1000
        log.send(number, f"plain {number:040}")
        log.send(number, f"open {number:040}", producer=8, transactional=True)
        if number == 7:
            log.leader_epoch = 3
        if number % 4 == 3:
            log.abort(producer=8)
        log.append("x" * 40)
    log.flush()
    assert len(log.log.segments) > 3
    return log
