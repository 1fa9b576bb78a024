"""Cuts of a cluster that is restored from its archive: those of which the archive has every record. Pure."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from cordwood.archive.commits import Chain
from cordwood.archive.cuts import CutObject, PinnedRange
from cordwood.cluster.metadata.cuts import Cut, CutPartition


def restored_cuts(
    objects: Iterable[CutObject], chains: Mapping[tuple[UUID, int], Chain]
) -> tuple[dict[str, Cut], list[str]]:
    """Return the cuts by name, and sentences about those that are not restored.

    New records get the offsets of lost ones: a cut that has lost some would have others in their place.
    """
    cuts, passed_over = {}, []
    for found in sorted(objects, key=lambda cut: cut.created_ms):
        lacking = next((row for row in found.ranges if not _has(chains.get((row.topic_id, row.partition)), row)), None)
        if lacking is None:
            rows = tuple([CutPartition(row.topic_id, row.partition, row.start, row.end) for row in found.ranges])
            cuts[found.name] = Cut(found.name, found.created_ms, found.expires_ms, rows)
        else:
            lost = (
                f"the archive does not have all of {lacking.topic}-{lacking.partition} from offset {lacking.start} to"
            )
            passed_over.append(f"the cut {found.name}: {lost} {lacking.end}")
    return cuts, passed_over


def _has(chain: Chain | None, row: PinnedRange) -> bool:
    if chain is None:
        return False
    start, end = chain.archive.start, chain.archive.end
    return row.start == row.end or (start is not None and end is not None and start <= row.start and row.end <= end)
