"""Repair in place: damaged ranges of a segment are refetched from other replicas, with no truncation.

The log end, the flushed end and all sound ranges stay as they are, so the replica keeps its role and its place in the
in-sync set.
"""

import asyncio
from collections.abc import Sequence

import structlog

from cordwood.replication.checkpoints import TRUNCATION_POLL_S
from cordwood.replication.log_directory import STAGING
from cordwood.replication.partition import Partition
from cordwood.replication.range_reads import RangeReader, RangeUnavailable
from cordwood.storage.disk import sync_directory
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.segment import Segment
from cordwood.storage.segment_rebuild import Missing, SegmentRebuild

_events = structlog.get_logger("repairs")


async def refetch(partition: Partition, segment: Segment, sources: Sequence[int], reader: RangeReader) -> bool:
    """Replace a damaged segment by a complete one. Return False if the log was truncated or dropped there meanwhile.

    `sources` are the brokers to ask, in this order. Raises RangeUnavailable, StorageError.
    """
    try:
        return await _refetch(partition, segment, sources, reader)
    except OSError as error:
        raise partition.directory.write_failed(error) from error


async def _refetch(partition: Partition, segment: Segment, sources: Sequence[int], reader: RangeReader) -> bool:
    log, run_blocking = partition.log, partition.directory.run_blocking
    log.roll_if_active(segment)
    place = f"{partition.directory.path}/{STAGING}/{partition.topic_id}-{partition.index}"
    await run_blocking(log.disk.make_directories, place)
    rebuild, left = SegmentRebuild(log, segment, place), list(sources)
    compacted_to = await run_blocking(rebuild.lost_end)
    try:
        steps = rebuild.steps()
        while (step := await run_blocking(next, steps, None)) is not None:
            if isinstance(step, Missing):
                await _fill(rebuild, step, partition, left, reader, compacted_to)
        while partition.is_checkpoint_locked or rebuild.is_behind():
            if partition.is_checkpoint_locked:
                # The checkpoint of a pending truncation lists the old segment.
                await asyncio.sleep(TRUNCATION_POLL_S)
            else:
                await run_blocking(rebuild.read_on)
        is_in_place = not partition.is_deleted and rebuild.replace_segment()
    except Exception:
        await run_blocking(rebuild.abort)
        raise
    if is_in_place:
        partition.report_lacking_producers()
        await run_blocking(sync_directory, log.disk, log.directory)
    else:
        await run_blocking(rebuild.abort)
    return is_in_place


async def _fill(
    rebuild: SegmentRebuild,
    missing: Missing,
    partition: Partition,
    sources: list[int],
    reader: RangeReader,
    compacted_to: int,
) -> None:
    """Fetch a missing range. Raises RangeUnavailable if no source has its next batch.

    All batches of a compacted segment come from one source, the only one left in `sources`: of a key that one replica
    has deleted, another may still have a record.
    """
    while rebuild.due < missing.end:
        refusals: list[str] = []
        for source in sources:
            try:
                batches = await reader.read(source, partition, rebuild.due, compacted_to)
                await partition.directory.run_blocking(rebuild.fill, missing, batches)
                break
            except (RangeUnavailable, CorruptBatch) as error:
                refusals.append(f"broker {source}: {error}")
        else:
            raise RangeUnavailable(f"no broker has offset {rebuild.due}: {'; '.join(refusals)}")
        if partition.log.config.compacted:
            sources[:] = [source]
