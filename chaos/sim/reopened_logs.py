"""Checks at the reopening of logs: flushed batches, producer states and indexes after a restart."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.index_rows import unproven
from cordwood.chaos.sim.replication import ReplicaBroker
from cordwood.replication.log_directory import MARKS_FILE
from cordwood.storage.batch import HEADER_BYTES, check, peek
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.log import Log
from cordwood.storage.producers import Producers
from cordwood.storage.state import load

Place = tuple[UUID, int]
"""A partition: topic id and partition index."""

LastBatches = dict[int, tuple[int, int]]
"""By producer id: the producer epoch, and the end offset of the last batch."""

NOTHING = (-1, -1)
MARKS_PATH, TOPICS_PATH = f"/data/{MARKS_FILE}", "/data/topics/"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The log end of a replica and its producer states."""

    end: int
    producers: LastBatches


@dataclass(frozen=True, slots=True)
class RecoveredBatch:
    """A whole batch: file, position, bytes and base offset."""

    path: str
    position: int
    batch: bytes
    offset: int


class ReopenedLogs:
    """The logs of all brokers. Call `went_down` when a process ends, and `open` when the next one starts."""

    def __init__(self) -> None:
        self._before: dict[int, dict[Place, Remembered]] = {}

    def went_down(self, broker: ReplicaBroker) -> None:
        """Record the state of the broker's logs."""
        self._before[broker.broker_id] = {
            (held.topic_id, held.index): Remembered(held.log.log_end, _last_batches(held.log.producers))
            for held in broker.replicas
        }

    def disk_is_gone(self, broker_id: int) -> None:
        """Forget the logs of a broker whose disk was replaced."""
        self._before.pop(broker_id, None)

    def open(self, broker: ReplicaBroker) -> None:
        """Open the logs of a broker. Raises AssertionError if they lack data, and Died."""
        flushed = list(_flushed_batches(broker.disk))
        _check_checkpoints(broker.disk)
        broker.register()
        _check_indexes(broker)
        _check_nothing_truncated(broker.disk, flushed)
        before = self._before.get(broker.broker_id, {})
        for held in broker.replicas:
            if (known := before.get((held.topic_id, held.index))) is not None:
                _check_producers(held.log, known)


def _flushed_batches(disk: SimulatedDisk) -> Iterator[RecoveredBatch]:
    """Yield the readable batches of all logs that the flushed offsets cover."""
    if not disk.exists(MARKS_PATH):
        return
    marks = FlushedOffsets(disk.open(MARKS_PATH))
    for path in disk.files():
        if path.startswith(TOPICS_PATH) and path.endswith(".log"):
            topic, index, _ = path.removeprefix(TOPICS_PATH).split("/")
            mark = marks.get(UUID(topic), int(index))
            end = 0 if mark is None else mark.end_offset
            yield from (found for found in whole_batches(path, disk.content(path)) if check(found.batch).end <= end)


def _check_checkpoints(disk: SimulatedDisk) -> None:
    """Check that no checkpoint has a batch above its recovery point: a retry would seem a duplicate (rule 9)."""
    for directory in {path.rpartition("/")[0] for path in disk.files() if path.startswith(TOPICS_PATH)}:
        state = load(disk, directory)
        for producer, (_, end) in _last_batches(state.producers).items():
            assert end <= state.recovery_point or state.damage, (
                f"rule 9: the checkpoint in {directory} is as of {state.recovery_point}, and has producer {producer} "
                f"at {end}"
            )


def _check_indexes(broker: ReplicaBroker) -> None:
    """Check that a reopened index has no rows of lost bytes, because other bytes will take their place (promise 4)."""
    for held in [] if broker.disk.has_lied else broker.replicas:
        wrong = list(unproven(broker.disk, held.log.directory))
        assert not wrong, wrong


def _check_nothing_truncated(disk: SimulatedDisk, before: list[RecoveredBatch]) -> None:
    """Check that recovery truncates no flushed batch, whatever damage is next to it (rule 8)."""
    contents = {path: disk.content(path) for path in disk.files()}
    for found in before:
        has_it = contents.get(found.path, b"").startswith(found.batch, found.position)
        assert has_it, f"rule 8: offset {found.offset} was flushed, and opening {found.path} has cut it"


def _check_producers(log: Log, before: Remembered) -> None:
    """Check that a log without losses knows the last batch of each producer (rule 9)."""
    if log.damage or log.log_end != before.end:
        return
    known = _last_batches(log.producers)
    for producer, last in before.producers.items():
        # A process that died in a truncation may have removed the state of producers whose batches are still there.
        assert known.get(producer, NOTHING) >= last, (
            f"rule 9: producer {producer} was at {last}, and after a restart is at {known.get(producer)}"
        )


def _last_batches(producers: Producers) -> LastBatches:
    return {
        producer_id: (producer.epoch, producer.batches[-1].end_offset if producer.batches else -1)
        for producer_id, producer in producers
    }


def whole_batches(path: str, content: bytes) -> Iterator[RecoveredBatch]:
    """Yield the valid batches of a segment, past invalid ones, up to the first with an impossible length."""
    position = due = 0
    while len(content) - position >= HEADER_BYTES:
        size = peek(content, position).size
        if not HEADER_BYTES <= size <= len(content) - position:
            return
        batch = content[position : position + size]
        with contextlib.suppress(CorruptBatch):
            header = check(batch)
            # No checksum covers the base offset: a torn write may have lost it with the last sector of the write.
            if header.base_offset >= due:
                yield RecoveredBatch(path, position, batch, header.base_offset)
                due = header.end
        position += size
