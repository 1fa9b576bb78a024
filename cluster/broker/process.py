"""The broker process: event loop, threads, clocks, randomness, signals and exit code.

Only this module and `storage/real_disk.py` use the real ones.
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
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
import uvloop

from cordwood.archive.store import ObjectStore, StoreError
from cordwood.cluster.broker.broker import Broker
from cordwood.cluster.broker.environment import DiskAccess, Environment
from cordwood.cluster.broker.identity import WrongDirectory
from cordwood.cluster.broker.log_lines import LogLimit, processors_of
from cordwood.cluster.config.listeners import Listener
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.imports import import_all, imports
from cordwood.cluster.metadata.command_codec import UnknownCommand
from cordwood.cluster.metadata.commands import ScramUpsertion
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import QuorumFailed
from cordwood.cluster.metadata.raft.storage import WrongMetadata
from cordwood.cluster.metadata.snapshot import NewerVersion
from cordwood.cluster.resources import heap
from cordwood.cluster.security.tls_errors import TlsMistake
from cordwood.cluster.security.tls_listeners import TlsListeners
from cordwood.replication.syncers import Syncer, best_syncer
from cordwood.replication.tasks import CONTAINED, RunBlocking, Tasks
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import StorageError
from cordwood.storage.real_disk import DirectoryInUse, RealDisk, lock_directory

MISTAKES = (
    StorageError,
    StoreError,
    WrongDirectory,
    WrongMetadata,
    NewerVersion,
    CommandRefused,
    UnknownCommand,
    QuorumFailed,
    TlsMistake,
    RuntimeError,
)
"""Errors that keep a broker from starting; each message says what to do."""

BLOCKING_THREADS = 4
HEAP_TRIM_INTERVAL_S = 5.0
DESCRIPTORS_UNLIMITED = 1 << 20

_events = structlog.get_logger("broker")


class CannotStart(Exception):
    """An error that keeps the broker from running: a sentence for the user who started it."""


def run(settings: Settings, first_users: Sequence[ScramUpsertion] = ()) -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code. Raises CannotStart."""
    _configure_logging(settings)
    _keep_objects()
    # Garbage collection scans new objects in portions of 30,000, which take 7 ms each.
    gc.set_threshold(10_000, 2, 700)
    gc.enable()
    heap.keep_large_blocks_apart()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    disk = RealDisk(settings.log_dir_headroom_bytes)
    locks: list[int] = []
    failed: dict[str, OSError] = {}
    try:
        for directory in settings.log_dirs:
            try:
                for changed in disk.make_directories(directory):
                    sync_directory(disk, changed)
                locks.append(lock_directory(directory))
            except (FileExistsError, NotADirectoryError) as error:
                message = (
                    f"log.dirs: {directory} is not a directory, and cannot be made: a file has its name or that of"
                )
                raise CannotStart(f"{message} a folder above it. Name another directory, or move the file.") from error
            except OSError as error:
                if isinstance(error, DirectoryInUse) or directory == settings.log_dirs[0]:
                    raise
                # The broker leaves it out.
                failed[directory] = error
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, disk, first_users, failed))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CannotStart(f"{where}{error.strerror or error}") from error
    except MISTAKES as error:
        raise CannotStart(str(error)) from error
    finally:
        for lock in locks:
            os.close(lock)


async def _serve(
    settings: Settings, disk: Disk, first_users: Sequence[ScramUpsertion], failed: Mapping[str, OSError]
) -> int:
    loop = asyncio.get_running_loop()
    started = loop.time()
    environment = _environment(disk, max(BLOCKING_THREADS, settings.num_recovery_threads_per_data_dir), failed)
    tls = TlsListeners(settings, environment.wall_clock, environment.run_blocking)
    environment = replace(environment, tls=tls, open_store=_archive_of(settings))
    broker = Broker(settings, environment, first_users)
    loop.set_exception_handler(exception_handler(broker.failure))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, tls.reload_soon)
    broker.failure.add_done_callback(lambda _: stopping.set())
    starting = loop.create_task(broker.start(), name="start")
    if not await _done_before(starting, stopping):
        # Nothing has been served yet. Wait until no thread writes any more: another process may then lock the log
        # directories.
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        environment.close()
        return _exit_code(broker)
    if starting.exception() is not None:
        environment.close()
    for listener in starting.result():
        _log_listener(listener)
    _events.info("broker.ready", node=settings.node_id, seconds=round(loop.time() - started, 3))
    _keep_objects()
    tasks = Tasks()
    tasks.repeat(_trim_heap, "heap")
    tasks.spawn(_import_rest(settings.imports_delay_ms / 1000, environment.run_blocking), "imports")
    await stopping.wait()
    await tasks.close()
    if not broker.failure.done():
        await broker.stop()
        _events.info("broker.stopped", node=settings.node_id)
    return _exit_code(broker)


def _log_listener(listener: Listener) -> None:
    _events.info(
        "listener.bound",
        listener=listener.name,
        address=listener.bound_address(),
        advertised=listener.advertised_address(),
    )
    if warning := listener.warning():
        _events.warning("listener.only_local", listener=listener.name, reason=warning)


def _keep_objects() -> None:
    """Spare garbage collection the objects made so far: those of imports and the start live as long as the process."""
    gc.collect()
    gc.freeze()


async def _import_rest(delay_s: float, run_blocking: RunBlocking) -> None:
    await asyncio.sleep(delay_s)
    began = asyncio.get_running_loop().time()
    await import_all(imports(), run_blocking)
    gc.freeze()
    _events.info("imports.done", seconds=round(asyncio.get_running_loop().time() - began, 3))


async def _trim_heap() -> None:
    await asyncio.sleep(HEAP_TRIM_INTERVAL_S)
    await asyncio.to_thread(heap.trim)


def _exit_code(broker: Broker) -> int:
    if not broker.failure.done():
        return 0
    _events.critical("broker.failed", reason=broker.failure.result())
    return 1


async def _done_before(task: "asyncio.Task[Any]", event: asyncio.Event) -> bool:
    """Return True if the task ended before the event was set."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return task.done()


def exception_handler(failure: "asyncio.Future[str]") -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return a handler that logs exceptions of callbacks and stops the broker on a broken invariant.

    An AssertionError does not stop the broker if only one partition or one round of a loop has failed (`CONTAINED`), or
    one connection, which its transport has closed.
    """

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        _events.error("callback.failed", message=context.get("message"), exc_info=error)
        is_over = CONTAINED in context or "protocol" in context
        if isinstance(error, AssertionError) and not is_over and not failure.done():
            failure.set_result(f"an invariant was violated: {error}")

    return handle


def _environment(disk: Disk, threads_per_directory: int, failed: Mapping[str, OSError]) -> Environment:
    """Return the environment of a real process. The log directories that `failed` when they were locked do so again."""
    loop = asyncio.get_running_loop()
    executors, syncers = list[ThreadPoolExecutor](), list[Syncer]()

    def threads(count: int) -> ThreadPoolExecutor:
        executors.append(started_threads(count))
        return executors[-1]

    def blocking_in(executor: ThreadPoolExecutor) -> RunBlocking:
        async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
            return await loop.run_in_executor(executor, function, *arguments)

        return run_blocking

    def access(path: str) -> DiskAccess:
        if path in failed:
            raise failed[path]
        executor = threads(threads_per_directory)
        syncers.append(best_syncer(loop, executor))
        return DiskAccess(syncers[-1], blocking_in(executor))

    def close() -> None:
        while executors:
            executors.pop().shutdown(wait=True, cancel_futures=True)
        while syncers:
            syncers.pop().close()

    return Environment(
        disk=disk,
        wall_clock=_wall_clock,
        clock=time.perf_counter,
        rng=random.SystemRandom(),
        run_blocking=blocking_in(threads(BLOCKING_THREADS)),
        access=access,
        hostname=socket.gethostname(),
        boot_id=_boot_id(),
        descriptors_max=_descriptors_max(),
        close=close,
    )


def _archive_of(settings: Settings) -> Callable[[], ObjectStore] | None:
    """Return the factory of the archive's store; None if there is no archive: its libraries are not imported then."""
    if not settings.archive_url:
        return None

    def open_store() -> ObjectStore:
        from cordwood.archive import obstore_store

        path = settings.archive_credentials_file
        return obstore_store.open_store(settings.archive_url, obstore_store.credentials_in(path) if path else None)

    return open_store


def started_threads(count: int) -> ThreadPoolExecutor:
    """Return an executor that has all its threads. Raises RuntimeError where the system refuses a thread.

    A thread refused later would leave work in an unknown state.
    """
    executor = ThreadPoolExecutor(count, thread_name_prefix="blocking")
    all_there = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            executor.submit(all_there.wait)
        all_there.wait()
    except BaseException:
        all_there.abort()
        executor.shutdown(wait=False)
        raise
    return executor


def _boot_id() -> str:
    """Return the id of the machine's boot.

    Without an id from the system each start has a new one: every unclean stop then counts as a power cut.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(uuid.uuid4())


def _descriptors_max() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_UNLIMITED if limit == resource.RLIM_INFINITY else limit


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _configure_logging(settings: Settings) -> None:
    structlog.configure(
        processors=[
            LogLimit(time.monotonic),
            *processors_of(settings.logging_format, settings.node_id, is_terminal=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
