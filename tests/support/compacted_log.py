"""A log whose sealed segments are rewritten by hand: whole batches are left out, as the log cleaner does."""

from collections.abc import Callable, Iterator

from log_fixture import ROOT, LogFixture

from cordwood.storage.batch import BatchHeader, peek
from cordwood.storage.compaction.run_writer import RunWriter, pieces_of, verified
from cordwood.storage.compaction.swap import swap
from cordwood.storage.log import Log
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile

WORK = f"{ROOT}/cleaning"
Keeps = Callable[[BatchHeader], bool]


def odd(header: BatchHeader) -> bool:
    return header.base_offset % 2 == 1


def nothing(_: BatchHeader) -> bool:
    return False


def rewritten_in(log: Log, work: str, old: list[Segment], keeps: Keeps) -> Segment:
    """Return a complete rewritten segment in the work directory."""
    log.disk.make_directories(work)
    file = SegmentFile(old[0].base_offset, max(segment.generation for segment in old) + 1)
    new = Segment.create(log.disk, work, file, log.config.index_interval_bytes, OpenSegments())
    writer = RunWriter(new, log.config.index_interval_bytes)
    last = None
    for segment in old:
        for last, batch in _batches(segment):
            if keeps(last):
                writer.add(batch)
    assert last is not None
    writer.finish(last, old[-1].end_offset)
    new.aborted.undecided = old[0].aborted.undecided
    assert sum(verified(new)) == new.size
    return new


def compact(log: LogFixture, first: int = 0, count: int = 2, keeps: Keeps = odd) -> list[Segment]:
    """Rewrite some segments and swap them. Return the old ones: the swap is committed by the next checkpoint."""
    old = log.log.segments[first : first + count]
    new = rewritten_in(log.log, WORK, old, keeps)
    swap(log.log, old, new)
    return old


def remove_replaced(log: LogFixture, old: list[Segment]) -> None:
    """Delete the files of replaced segments, as the broker does some time after the checkpoint."""
    for segment in log.log.replaced.take(old):
        segment.release()
        for path in filter(log.disk.exists, segment.paths()):
            log.disk.remove(path)


def _batches(segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
    for data in pieces_of(segment):
        at = 0
        while at < len(data):
            header = peek(data, at)
            yield header, bytes(data[at : at + header.size])
            at += header.size
