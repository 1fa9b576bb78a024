"""Background work on a broker's logs, as its settings have it: maintenance and the log cleaner."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.replay import without_copies
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from cordwood.replication.log_cleaner import CleanerLimits, LogCleaner
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.scrubber import Scrubber
from cordwood.storage.scrub import Undecodable

_events = structlog.get_logger("broker")


def log_maintenance_of(settings: Settings, replicas: Replicas, wall_clock: Callable[[], int]) -> LogMaintenance:
    intervals = Intervals(
        retention_s=settings.log_retention_check_interval_ms / 1000,
        delete_delay_s=settings.log_segment_delete_delay_ms / 1000,
        lag_max_s=settings.replica_lag_time_max_ms / 1000,
    )
    return LogMaintenance(replicas, wall_clock, intervals)


def log_cleaner_of(
    settings: Settings,
    quorum: Quorum,
    replicas: Replicas,
    log_maintenance: LogMaintenance,
    wall_clock: Callable[[], int],
    rng: random.Random,
) -> LogCleaner:
    """Return the log cleaner, whose limits follow the broker's dynamic config."""

    known: tuple[Image, CleanerLimits] | None = None

    def limits() -> CleanerLimits:
        nonlocal known
        image = quorum.image
        if known is None or known[0] is not image:
            known = image, limits_of(image)
        return known[1]

    def limits_of(image: Image) -> CleanerLimits:
        now = broker_config(settings, image)
        return CleanerLimits(
            threads=int(now.number("log.cleaner.threads")) if settings.log_cleaner_enable else 0,
            buffer_bytes=int(now.number("log.cleaner.dedupe.buffer.size")),
            bytes_per_second=now.number("log.cleaner.io.max.bytes.per.second"),
            backoff_s=now.number("log.cleaner.backoff.ms") / 1000,
        )

    coordinated = dict.fromkeys((CONSUMER_OFFSETS, TRANSACTION_STATE), without_copies)
    return LogCleaner(replicas, log_maintenance, wall_clock, limits, rng, coordinated)


def scrubber_of(
    settings: Settings,
    replicas: Replicas,
    scrub_the_rest: Callable[[], Awaitable[None]],
    found_undecodable: Callable[[Partition, Undecodable], None],
) -> Scrubber:
    rate, interval_s = settings.log_scrub_bytes_per_second, settings.log_scrub_interval_ms / 1000
    return Scrubber(replicas, rate, scrub_the_rest, found_undecodable, interval_s)


async def close_logs(replicas: Replicas) -> None:
    """Flush and close all logs, so that the next start recovers nothing."""
    await asyncio.gather(*(directory.flusher.drain() for directory in replicas.directories))
    closing = [partition.directory.run_blocking(_close, partition) for partition in replicas]
    unclosed = {partition.directory for partition in await asyncio.gather(*closing) if partition is not None}
    for directory in replicas.directories:
        if directory not in unclosed:
            directory.stopped()


def _close(partition: Partition) -> Partition | None:
    """Close a partition's log, in a thread. Return the partition if it was not closed: the next start recovers it."""
    if partition.is_offline:
        # The memory of a failed replica may be wrong.
        return partition
    try:
        partition.close()
    except OSError as error:
        _events.error("log.not_closed", directory=partition.log.directory, error=str(error))
        return partition
    return None
