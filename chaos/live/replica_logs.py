"""Comparison of a partition's replicas, as stopped brokers left them on disk: batch by batch, or key by key.

Replicas of a compacted partition are compared key by key: each is compacted by itself.
"""

from collections.abc import Iterator, Mapping, Set
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from cordwood.chaos import compacted
from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.compacted import CompactedContents
from cordwood.chaos.live.process import run_cordwood
from cordwood.storage.batch import BatchHeader, check
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.segment_files import SegmentFile, segment_file, segment_path

TOPICS = "topics"

Replica = tuple[str, str]
"""A topic's id and a partition's number, both as they are in the path."""


class RawBatch(NamedTuple):
    """A batch on disk. `digest` covers every byte, offset and leader epoch included."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    digest: int


def replicas_in(data: Path) -> set[Replica]:
    """Return the partitions that a log directory has a replica of."""
    return {(path.parent.name, path.name) for path in (data / TOPICS).glob("*/*") if path.is_dir()}


def batches_in(directory: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield all valid batches of a partition's directory, up to the first invalid one of each segment."""
    due = 0
    for file in _segments(directory):
        if file.base_offset < due:
            # Another generation has replaced it, and it is not removed yet.
            continue
        for header, content in _batches_of(directory, file):
            yield header, content
            due = max(due, header.end)


def is_replaced(path: Path) -> bool:
    """Return whether another generation has the offsets of this segment or index: its file stays for a while."""
    mine = segment_file(path.name)
    if mine is None:
        return False
    for file in _segments(path.parent):
        if file.generation > mine.generation and file.base_offset <= mine.base_offset:
            batches = _batches_of(path.parent, file)
            if file.base_offset == mine.base_offset or any(header.end > mine.base_offset for header, _ in batches):
                return True
    return False


def raw_batches(directory: Path) -> Iterator[RawBatch]:
    """Yield the same batches without their contents."""
    for header, content in batches_in(directory):
        yield RawBatch(header.base_offset, header.end, header.leader_epoch, crc32c(content))


def end_offset(data: Path, replica: Replica) -> int:
    """Return a replica's log end offset, 0 where the log is empty."""
    return max((batch.end_offset for batch in raw_batches(_directory(data, replica))), default=0)


def divergences(data: Mapping[int, Path], left_out: Set[Replica] = frozenset()) -> Iterator[Anomaly]:
    """Yield the differences between replicas. The brokers must have been in sync without load, and have stopped."""
    for replica in sorted(set().union(*map(replicas_in, data.values())) - left_out):
        holders = {broker: path for broker, path in data.items() if replica in replicas_in(path)}
        longest = max(end_offset(path, replica) for path in holders.values())
        yield from differences(holders, replica, longest)


def differences(data: Mapping[int, Path], replica: Replica, committed: int) -> Iterator[Anomaly]:
    """Yield one partition's differences below the smallest log end offset, which `committed` must not exceed."""
    logs = {broker: list(raw_batches(_directory(path, replica))) for broker, path in data.items()}
    name = "-".join(replica)
    ends = {broker: log[-1].end_offset if log else 0 for broker, log in logs.items()}
    start = max(log[0].base_offset if log else 0 for log in logs.values())
    end = min(ends.values())
    if end < committed:
        yield Anomaly("lost-write", f"{name}: committed up to {committed}, and the replicas' logs end at {ends}", (), 1)
    one, *others = logs
    if any(file.generation for path in data.values() for file in _segments(_directory(path, replica))):
        yield from _differences_of_compacted(data, replica, end)
        return
    expected = _between(logs[one], start, end)
    for other in others:
        found = _between(logs[other], start, end)
        if found != expected:
            mine, theirs = next(pair for pair in zip_longest(expected, found) if pair[0] != pair[1])
            yield Anomaly("replica-divergence", f"{name}: broker {one} has {mine}, broker {other} has {theirs}", (), 1)


def _differences_of_compacted(data: Mapping[int, Path], replica: Replica, end: int) -> Iterator[Anomaly]:
    # Not from the first batches on: they may be deleted with all their records.
    start = max(_segments(_directory(path, replica))[0].base_offset for path in data.values())
    contents = {
        broker: CompactedContents(content for _, content in batches_in(_directory(path, replica)))
        for broker, path in data.items()
    }
    one, *others = contents
    for other in others:
        for difference in islice(compacted.differences(contents[one], contents[other], start, end), 1):
            what = f"{'-'.join(replica)}: on brokers {one} and {other}, {difference}"
            yield Anomaly("replica-divergence", what, (), 1)


def damage(data: Mapping[int, Path]) -> Iterator[Anomaly]:
    """Yield the findings of `cordwood log verify` in the directories of stopped brokers."""
    for broker, path in data.items():
        verified = run_cordwood("log", "verify", str(path))
        if verified.returncode:
            yield Anomaly("damaged", f"broker {broker}: {verified.stdout.strip()} {verified.stderr.strip()}", (), 1)


def _batches_of(directory: Path, file: SegmentFile) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the valid batches of a segment up to the first invalid one."""
    content = Path(segment_path(str(directory), *file)).read_bytes()
    position = 0
    while position < len(content):
        try:
            header = check(content, position)
        except CorruptBatch:
            return
        yield header, content[position : position + header.size]
        position += header.size


def _segments(directory: Path) -> list[SegmentFile]:
    """Return the segments by base offset, the newest generation first."""
    files = [file for path in directory.glob("*.log") if (file := segment_file(path.name)) is not None]
    return sorted(files, key=lambda file: (file.base_offset, -file.generation))


def _directory(data: Path, replica: Replica) -> Path:
    return data / TOPICS / replica[0] / replica[1]


def _between(log: list[RawBatch], start: int, end: int) -> list[RawBatch]:
    return [batch for batch in log if batch.base_offset >= start and batch.end_offset <= end]
