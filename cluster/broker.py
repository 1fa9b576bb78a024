"""The composition root: everything that a broker is made of is built and wired here, and nowhere else.

Together with `storage/real_disk.py` it is the only place that knows the clock, the randomness, the threads and the
event loop of the real world.
"""

import asyncio
import gc
import logging
import os
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import structlog
import uvloop

from cordwood.cluster.assignments import Assignments
from cordwood.cluster.config import Settings
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.groups.settings import group_settings
from cordwood.cluster.groups.topic import ReplicatedTopic
from cordwood.cluster.identity import WrongDirectory, claim, refuse_to_found
from cordwood.cluster.kafka.call import Services
from cordwood.cluster.kafka.dispatch import Dispatcher
from cordwood.cluster.kafka.fetch_sessions import FetchSessions
from cordwood.cluster.kafka.handlers.fetch import Fetching
from cordwood.cluster.kafka.handlers.produce import Producing
from cordwood.cluster.kafka.registry import served_apis
from cordwood.cluster.kafka.server import Server
from cordwood.cluster.listeners import Listener, listeners_of
from cordwood.cluster.metadata.commands import BrokerId, RegisterBroker, UnknownCommand
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import QuorumFailed, SingleVoter
from cordwood.cluster.producer_ids import ProducerIds
from cordwood.replication.flusher import Flusher
from cordwood.replication.housekeeping import Housekeeping, Intervals
from cordwood.replication.log_directory import METADATA, LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.syncers import best_syncer
from cordwood.replication.waiters import Wakeups
from cordwood.storage.disk import Disk, Syncable, sync_directory
from cordwood.storage.errors import DamagedLog
from cordwood.storage.real_disk import RealDisk, lock_directory

BLOCKING_THREADS = 4

_events = structlog.get_logger("broker")


class CannotStart(Exception):
    """Why the broker does not run: a sentence for whoever started it."""


class Broker:
    """One broker. `start` and `stop` are its life; `failure` is set when it can no longer go on."""

    def __init__(self, settings: Settings, disk: Disk, wall_clock: Callable[[], int], rng: random.Random) -> None:
        self._settings, self._disk, self._wall_clock, self._rng = settings, disk, wall_clock, rng
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="blocking")
        self._damage_told: set[tuple[str, int]] = set()
        self.failure: asyncio.Future[str] = self._loop.create_future()

    async def start(self) -> tuple[Listener, ...]:
        """Recover the logs, take the listeners' addresses and serve. Raises OSError, DamagedLog, WrongDirectory.

        Blocks the loop while it recovers: nothing else is to be done yet.
        """
        settings = self._settings
        self._wakeups = Wakeups(self._loop)
        self._syncer = best_syncer(self._loop, self._executor)
        self._flusher = Flusher(self._loop, self._syncer, self._wakeups)
        directories = [LogDirectory(self._disk, path, self._directory_failed) for path in settings.log_dirs]
        metadata = f"{settings.log_dirs[0]}/{METADATA}"
        refuse_to_found(self._disk, metadata, settings.log_dirs)
        self._quorum = SingleVoter.open(
            self._disk,
            metadata,
            self._sync,
            self._rng,
            cluster_id=settings.cluster_id,
            snapshot_interval_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
            on_failure=self._metadata_failed,
        )
        image = self._quorum.image
        for repaired in self._quorum.damage:
            self._damaged(repaired)
        for directory in directories:
            damage = claim(self._disk, directory.path, image.cluster_id, settings.node_id, self._uuid())
            for found in (*directory.marks.damage, damage):
                if found is not None:
                    self._damaged(found)
        self._replicas = Replicas(directories, self._flusher, self._wakeups)
        intervals = Intervals(
            settings.log_retention_check_interval_ms / 1000, settings.log_segment_delete_delay_ms / 1000
        )
        self._housekeeping = Housekeeping(self._replicas, self._run_blocking, self._wall_clock, intervals)
        assignments = Assignments(self._replicas, self._housekeeping, settings, self._wall_clock)
        assignments.begin(image)
        self._quorum.subscribe(assignments.follow)
        self._groups = self._build_groups()
        self._quorum.subscribe(self._groups.on_metadata_change)
        self._build_server()
        bound = await self._server.bind(listeners_of(settings, socket.gethostname()))
        await self._quorum.propose(
            RegisterBroker(
                BrokerId(settings.node_id),
                self._uuid(),
                tuple(listener.endpoint for listener in bound),
                settings.broker_rack,
                tuple(settings.log_dirs),
            )
        )
        self._housekeeping.start()
        self._groups.start()
        await self._server.serve()
        return bound

    async def stop(self) -> None:
        """End connections, put everything on disk, and leave nothing for the next start to recover."""
        await self._server.close()
        await self._groups.close()
        await self._dispatcher.close()
        await self._housekeeping.stop()
        await self._flusher.drain()
        closing = [self._run_blocking(self._close, partition) for partition in self._replicas]
        await asyncio.gather(*closing)
        await self._quorum.close()
        self._syncer.close()
        self._executor.shutdown(wait=True)

    def _close(self, partition: Partition) -> None:
        """In a thread. A log that cannot be put away is recovered by the next start."""
        if not partition.directory.is_offline:
            try:
                partition.close()
            except OSError as error:
                _events.error("log.not_closed", directory=partition.log.directory, error=str(error))

    def _build_groups(self) -> GroupCoordinator:
        topic = ReplicatedTopic(
            self._quorum, self._replicas, self._settings, self._run_blocking, self._wall_clock, self._rng
        )
        return GroupCoordinator(
            settings=group_settings(self._settings),
            topic=topic,
            topic_exists=lambda name: name in self._quorum.image.topics_by_name,
            wall_clock=self._wall_clock,
            rng=self._rng,
        )

    def _build_server(self) -> None:
        settings = self._settings
        services = Services(
            settings=settings,
            quorum=self._quorum,
            replicas=self._replicas,
            groups=self._groups,
            producer_ids=ProducerIds(self._quorum, BrokerId(settings.node_id)),
            housekeeping=self._housekeeping,
            run_blocking=self._run_blocking,
            wall_clock=self._wall_clock,
            rng=self._rng,
            served_apis=served_apis(),
        )
        producing = Producing(self._replicas, self._wall_clock)
        sessions = FetchSessions(settings.max_incremental_fetch_session_cache_slots, self._rng)
        fetching = Fetching(
            self._replicas, sessions, self._run_blocking, self._wall_clock, settings.fetch_max_bytes, self._damaged
        )
        self._dispatcher = Dispatcher(services, producing, fetching)
        self._server = Server(settings, self._wakeups, self._run_blocking, self._dispatcher.handle, self._damaged)

    async def _run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._executor, function, *arguments)

    async def _sync(self, file: Syncable) -> None:
        await self._run_blocking(file.sync)

    def _uuid(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)

    def _directory_failed(self, directory: LogDirectory) -> None:
        _events.error("log_directory.offline", directory=directory.path, error=str(directory.error))
        self._replicas.go_offline(directory)
        if all(other.is_offline for other in self._replicas.directories):
            self._fail("no log directory is left that can be written to")

    def _metadata_failed(self, error: QuorumFailed) -> None:
        self._fail(f"the metadata journal cannot be written: {error}")

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    def _damaged(self, damage: DamagedLog) -> None:
        """One line for each place, however often it is met."""
        place = (damage.path, damage.position)
        if place not in self._damage_told and len(self._damage_told) < 10_000:
            self._damage_told.add(place)
            _events.error("log.damaged", damage=str(damage))


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code. Raises CannotStart."""
    _configure_logging()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    disk = RealDisk(settings.log_dir_headroom_bytes)
    locks: list[int] = []
    try:
        for directory in settings.log_dirs:
            for changed in disk.make_directories(directory):
                sync_directory(disk, changed)
            locks.append(lock_directory(directory))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, disk))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CannotStart(f"{where}{error.strerror or error}") from error
    except (DamagedLog, WrongDirectory, CommandRefused, UnknownCommand) as error:
        raise CannotStart(str(error)) from error
    finally:
        for lock in locks:
            os.close(lock)


async def _serve(settings: Settings, disk: Disk) -> int:
    loop = asyncio.get_running_loop()
    started = loop.time()
    broker = Broker(settings, disk, _wall_clock, random.SystemRandom())
    loop.set_exception_handler(broker_exception_handler(broker))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    listeners = await broker.start()
    for listener in listeners:
        _events.info(listener.announcement())
    _events.info("broker.ready", node=settings.node_id, seconds=round(loop.time() - started, 3))
    # What start-up made lives for ever: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    broker.failure.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if broker.failure.done():
        _events.critical("broker.failed", reason=broker.failure.result())
        return 1
    await broker.stop()
    _events.info("broker.stopped", node=settings.node_id)
    return 0


def broker_exception_handler(broker: Broker) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A broken invariant stops the broker; any other error in a callback is logged, and ends what it was part of."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        _events.error("callback.failed", message=context.get("message"), exc_info=error)
        if isinstance(error, AssertionError) and not broker.failure.done():
            broker.failure.set_result(f"a broken invariant: {error}")

    return handle


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _configure_logging() -> None:
    processors: Sequence[Any] = (
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.ExceptionRenderer(),
        structlog.dev.ConsoleRenderer(colors=False) if sys.stderr.isatty() else structlog.processors.LogfmtRenderer(),
    )
    structlog.configure(
        processors=list(processors),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
