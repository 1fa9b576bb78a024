"""Cuts of a restored cluster: only those whose records are all in the archive."""

from uuid import UUID

from cordwood.archive.commits import Chain
from cordwood.archive.cuts import CutObject, PinnedRange
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive
from cordwood.cluster.broker.restored_cuts import restored_cuts
from cordwood.cluster.metadata.cuts import CutPartition
from cordwood.storage.types import NEVER_EXPIRES

TOPIC = UUID(int=7)
NOW_MS = 1_700_000_000_000


def chain(start: int, end: int) -> Chain:
    segment = ArchivedSegment(UUID(int=1), start, start, end, 100, 0, 10, 0, NOW_MS, 0)
    return Chain(PartitionArchive((segment,), sequence=1), newest=1, end=end)


def cut(name: str, *ranges: tuple[int, int, int], created_ms: int = NOW_MS) -> CutObject:
    rows = [PinnedRange("orders", TOPIC, partition, start, end) for partition, start, end in ranges]
    return CutObject(name, created_ms, NEVER_EXPIRES, tuple(rows))


def test_a_cut_is_restored_if_the_archive_has_all_of_it() -> None:
    chains = {(TOPIC, 0): chain(5, 20), (TOPIC, 1): Chain(PartitionArchive())}
    wanted = [
        cut("whole", (0, 5, 20), (1, 3, 3)),
        cut("a-part", (0, 7, 9)),
        cut("tail", (0, 5, 21)),
        cut("head", (0, 4, 9)),
        cut("empty", (1, 0, 1)),
        cut("gone", (2, 0, 1)),
    ]
    cuts, passed_over = restored_cuts(wanted, chains)
    assert list(cuts) == ["whole", "a-part"]
    assert cuts["whole"].partitions == (CutPartition(TOPIC, 0, 5, 20), CutPartition(TOPIC, 1, 3, 3))
    assert [sentence.split(":")[0] for sentence in passed_over] == [
        "the cut tail", "the cut head", "the cut empty", "the cut gone",
    ]  # fmt: skip


def test_the_newest_cut_of_a_name_counts() -> None:
    cuts, _ = restored_cuts(
        [cut("monday", (0, 5, 6), created_ms=NOW_MS + 1), cut("monday", (0, 5, 9))], {(TOPIC, 0): chain(5, 20)}
    )
    assert cuts["monday"].created_ms == NOW_MS + 1
