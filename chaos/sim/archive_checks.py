"""Checks of the archive: the store has what the manifests list, and nothing else; logs and archive agree."""

import asyncio
from collections.abc import Callable, Iterator
from uuid import UUID

from crc32c import crc32c

from cordwood.archive.commits import Chain, read_chain
from cordwood.archive.layout import segment_in, segment_names
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive
from cordwood.archive.segment_state import DamagedState, decode
from cordwood.chaos.compacted import CompactedContents
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.object_store import SimulatedObjects
from cordwood.chaos.sim.raw import Cursor, batches
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.image import Image
from cordwood.replication.partition import Partition
from cordwood.storage.batch import check, peek
from cordwood.storage.errors import CorruptBatch

TRIES, TRY_AGAIN_S = 20, 2.0

Place = tuple[UUID, int]
Found = Iterator[tuple[str, str]]
"""The kind of a violation, and a sentence."""


class ArchiveChecks:
    """The checks of one run."""

    def __init__(self, objects: SimulatedObjects, newest: Callable[[], Image]) -> None:
        """`newest` returns the newest image of any running broker."""
        self._objects, self._newest = objects, newest
        self._announced: set[UUID] = set()
        """Ids of all uploads that any manifest has had."""
        self._seen: dict[Place, PartitionArchive] = {}
        self._ends: dict[Place, int] = {}
        """By partition: the largest end that its archive has had."""
        self._sentences: list[tuple[str, str]] = []
        self._image = Image()
        objects.on_created = self._created
        objects.on_deleted = self._deleted

    def look(self, image: Image, brokers: list[Watched]) -> Found:
        """Check the newest manifests, and what brokers need them for.

        `image` is the newest of all running brokers: a broker that was killed may have known of later manifests.
        """
        self._note(image)
        is_newest = image.index == self._image.index
        yield from self._sentences
        self._sentences = []
        for broker in brokers:
            for partition in broker.replicas:
                if not partition.is_offline and not partition.is_deleted:
                    yield from _is_covered(broker, partition)
                    if is_newest and partition.is_leader and broker.quorum.image is image:
                        yield from self._goes_on(image, broker, partition)

    def _note(self, image: Image) -> None:
        if image.index <= self._image.index:
            return
        self._image = image
        for place, archive in image.archives.items():
            before = self._seen.get(place)
            if before is archive:
                continue
            self._seen[place] = archive
            for row in (archive.segments, archive.uploads, archive.removed):
                self._announced.update(one.id for one in row)
            self._ends[place] = max(self._ends.get(place, 0), archive.end or 0)
            known = frozenset() if before is None else frozenset(before.segments)
            for segment in archive.segments:
                if segment not in known:
                    self._sentences += self._lacks(image, place, segment)

    def _goes_on(self, image: Image, broker: Watched, partition: Partition) -> Found:
        """Archive rule 5: a leader goes on after the archive's end, and only retention removes what is archived."""
        place = partition.topic_id, partition.index
        end, where = self._ends.get(place, 0), f"{partition.topic}-{partition.index}"
        kept = max(image.archives.get(place, PartitionArchive()).end or 0, partition.log.log_start)
        if partition.log.log_end < end:
            yield (
                "archive-ahead",
                f"{where} ends at {partition.log.log_end} on its leader {broker.broker_id}, and {end} was archived",
            )
        if kept < end:
            yield "archive-cut", f"{where} was archived up to {end}, and only {kept} is left of it"

    def _lacks(self, image: Image, place: Place, segment: ArchivedSegment) -> Found:
        for name in segment_names(image.cluster_id, *place, segment):
            if name not in self._objects.contents:
                yield "archive-lacks", f"{name} is committed, and the store does not have it"

    def _created(self, name: str) -> None:
        """Check that an object of a segment was announced."""
        self._note(self._newest())
        found = segment_in(self._image.cluster_id, name)
        if found is not None and found.id not in self._announced:
            self._sentences.append(("archive-unannounced", f"{name} is in the store, and no manifest has had it"))

    def _deleted(self, name: str) -> None:
        """Check that no manifest lists an object that is deleted."""
        self._note(self._newest())
        found = segment_in(self._image.cluster_id, name)
        if found is None or found.topic_id not in self._image.topics_by_id:
            return
        archive = self._seen.get((found.topic_id, found.partition), PartitionArchive())
        if any(segment.id == found.id for segment in archive.segments):
            self._sentences.append(("archive-lost", f"{name} is deleted, and its manifest lists it"))

    def due_ends(self, brokers: list[Watched]) -> dict[Place, int]:
        """Return the end of what has to be archived by now, by partition."""
        return {
            (partition.topic_id, partition.index): _sealed_end(partition)
            for partition in _led(brokers)
            if partition.log.config.is_archived
        }

    def lacking(self, image: Image, brokers: list[Watched], due: dict[Place, int]) -> str:
        """Return what the archive still lacks, as a text; empty if it has everything up to the ends that were due.

        What retention has deleted meanwhile does not count.
        """
        for partition in _led(brokers):
            place = partition.topic_id, partition.index
            archived = max(image.archives.get(place, PartitionArchive()).end or 0, partition.log.log_start)
            if archived < due.get(place, 0):
                return f"{partition.topic}-{partition.index} is archived up to {archived}, and {due[place]} is due"
        return ""

    def outdated(self, image: Image, before_ms: int) -> str:
        """Return which objects should have been deleted by now, as a text; empty if there are none."""
        for (topic_id, index), archive in image.archives.items():
            if any(one.begun_ms < before_ms for one in archive.uploads):
                return f"an old upload of {topic_id}-{index} was not given up"
            if any(one.removed_ms < before_ms for one in archive.removed):
                return f"the objects of {topic_id}-{index} were not deleted"
        return self._orphans(image)

    def _orphans(self, image: Image) -> str:
        listed = {
            name
            for place, archive in image.archives.items()
            for row in (archive.segments, archive.uploads, archive.removed)
            for one in row
            for name in segment_names(image.cluster_id, *place, one)
        }
        orphans = [name for name in self._objects.contents if name.startswith("segments/") and name not in listed]
        return f"{len(orphans)} objects are in no manifest, such as {orphans[0]}" if orphans else ""

    async def compare(
        self, image: Image, brokers: list[Watched], disks: dict[int, SimulatedDisk]
    ) -> list[tuple[str, str]]:
        """Compare every archived segment with its leader's log, and the commits in the store with the manifests."""
        found: list[tuple[str, str]] = []
        for broker in brokers:
            for partition in broker.replicas:
                archive = image.archives.get((partition.topic_id, partition.index))
                if partition.is_leader and archive is not None:
                    found += self._compare(image.cluster_id, partition, archive, disks[broker.broker_id])
                    found += await self._compare_commits(partition)
        return found

    async def _compare_commits(self, partition: Partition) -> list[tuple[str, str]]:
        """Compare the manifest with what readers without brokers find. It may change meanwhile."""
        store, place = self._objects.of_host(_no_disk), (partition.topic_id, partition.index)
        chain, archive = Chain(PartitionArchive()), PartitionArchive()
        for _ in range(TRIES):
            image = self._newest()
            archive = image.archives[place]
            chain = await read_chain(store, image.cluster_id, *place)
            if (chain.archive.segments, chain.archive.log_start) == (archive.segments, archive.log_start):
                return []
            await asyncio.sleep(TRY_AGAIN_S)
        name = f"{partition.topic}-{partition.index}"
        sentence = f"the commits of {name} make the manifest of change {chain.archive.sequence}, not {archive.sequence}"
        return [("archive-commits", sentence)]

    def _compare(self, cluster_id: str, partition: Partition, archive: PartitionArchive, disk: SimulatedDisk) -> Found:
        log, name = partition.log, f"{partition.topic}-{partition.index}"
        try:
            on_disk = batches(disk, partition, Cursor(log.local_start), log.log_end)
            local = {peek(batch).base_offset: batch for batch in on_disk}
        except (CorruptBatch, OSError) as error:
            yield "archive-unreadable", f"{name}: {error}"
            return
        for segment in archive.segments:
            due = segment.start_offset
            for batch in self._batches(cluster_id, partition, segment):
                if isinstance(batch, str):
                    yield "archive-damaged", f"{name}: {batch}"
                    return
                header = peek(batch)
                if header.base_offset > due and not log.config.compacted:
                    yield (
                        "archive-gap",
                        f"{name}: the records from {due} to {header.base_offset} are not in the archive",
                    )
                here = local.get(header.base_offset)
                is_here = header.base_offset >= log.local_start and header.base_offset >= log.log_start
                if is_here and here != batch and not (log.config.compacted and _has_only_fewer(here, batch)):
                    yield (
                        "archive-differs",
                        f"{name}: the archive has another batch at {header.base_offset} than the log",
                    )
                due = max(due, header.end)
            if due != segment.end_offset and not log.config.compacted:
                yield "archive-gap", f"{name}: a segment up to {segment.end_offset} ends at {due}"

    def _batches(self, cluster_id: str, partition: Partition, segment: ArchivedSegment) -> Iterator[bytes | str]:
        """Yield the batches of an archived segment, or what is wrong with its objects."""
        log_name, state_name = segment_names(cluster_id, partition.topic_id, partition.index, segment)
        content, state = self._objects.contents.get(log_name), self._objects.contents.get(state_name)
        if content is None or state is None:
            yield f"an object of {log_name} is missing"
            return
        if (len(content), crc32c(content)) != (segment.size, segment.crc):
            yield f"{log_name} is not what its manifest says"
            return
        try:
            decoded = decode(state)
        except DamagedState as error:
            yield f"{state_name}: {error}"
            return
        if (len(state), crc32c(state)) != (
            segment.state_size,
            segment.state_crc,
        ) or decoded.end_offset != segment.end_offset:
            yield f"{state_name} is not what its manifest says"
        at = 0
        while at < len(content):
            batch = content[at : at + peek(content, at).size]
            check(batch)
            yield batch
            at += len(batch)


def _has_only_fewer(here: bytes | None, archived: bytes) -> bool:
    """Return whether two copies of a batch differ only in the records that compaction has removed from one of them."""
    one, other = CompactedContents([here] if here else []).records, CompactedContents([archived]).records
    return all(one[offset] == other[offset] for offset in one.keys() & other.keys())


def _led(brokers: list[Watched]) -> Iterator[Partition]:
    return (partition for broker in brokers for partition in broker.replicas if partition.is_leader)


def _is_covered(broker: Watched, partition: Partition) -> Found:
    """Every committed record from the log start on is on this disk or in the archive."""
    log = partition.log
    if log.local_start <= log.log_start:
        return
    archive = broker.quorum.image.archives.get((partition.topic_id, partition.index), PartitionArchive())
    # A replica outside the in-sync set may not know yet of deleted records.
    log_start = max(log.log_start, archive.log_start)
    if log.local_start <= log_start or log_start >= partition.high_watermark:
        return
    begins = archive.segments[0].start_offset if archive.segments else None
    if begins is None or begins > log_start or (archive.end or 0) < log.local_start:
        yield (
            "archive-hole",
            f"{partition.topic}-{partition.index} on broker {broker.broker_id} begins at {log.log_start}, on disk at"
            f" {log.local_start}, and the archive is from {archive.start} to {archive.end}",
        )


def _sealed_end(partition: Partition) -> int:
    """Return the end of the sealed segments that are due in the archive."""
    stable = min(partition.high_watermark, partition.last_stable_offset)
    ends = [one.end_offset for one in partition.log.segments[:-1] if one.is_sealed and one.end_offset <= stable]
    return max(ends, default=0)


def _no_disk() -> SimulatedDisk:
    raise AssertionError("checks put no files")
