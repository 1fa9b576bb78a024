"""Log directories of a broker: opened at start, but for those that cannot be; recorded; replicas move between them."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from cordwood.cluster.broker.environment import Environment
from cordwood.cluster.broker.replica_homes import ReplicaHomes
from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.cordons import cordoned_directories
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.replication.file_removal import FileRemoval
from cordwood.replication.flusher import Flusher, FlushMeasures
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.replica_moves import ReplicaMoves
from cordwood.replication.replicas import LeftOut, Replicas
from cordwood.replication.waiters import EndOfTickScheduler

MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Dynamic broker config that limits moves of replicas between log directories (KIP-113)."""

_events = structlog.get_logger("log_directory")


def open_directories(
    paths: Sequence[str],
    environment: Environment,
    end_of_tick: EndOfTickScheduler,
    flushes: FlushMeasures,
    failed: Callable[[LogDirectory], None],
) -> tuple[list[LogDirectory], list[LeftOut]]:
    """Open the log directories, and return them and those that could not be opened.

    The first one has the cluster's metadata. Raises OSError if that cannot be opened.
    """
    opened: list[LogDirectory] = []
    left_out: list[LeftOut] = []
    for path in paths:
        try:
            access = environment.access(path)
            flusher = Flusher(asyncio.get_running_loop(), access.syncer, end_of_tick, environment.clock, flushes)
            directory = LogDirectory(environment.disk, path, failed, flusher, access.run_blocking, environment.boot_id)
            directory.found()
        except OSError as error:
            if not opened:
                raise
            left_out.append(LeftOut(path, error))
            _events.error(
                "log_directory.left_out",
                directory=path,
                error=str(error),
                advice="its replicas are copied again from other brokers: replace the disk and restart this broker",
            )
        else:
            opened.append(directory)
    return opened, left_out


class DirectoryCare:
    """The log directories of a broker that has several of them. With one directory it does nothing."""

    def __init__(self, quorum: Quorum, settings: Settings, replicas: Replicas, file_removal: FileRemoval) -> None:
        self._quorum, self._me, self._replicas = quorum, BrokerId(settings.node_id), replicas
        self._settings = settings
        self._homes = ReplicaHomes(quorum, settings.node_id, replicas)
        self._moves = ReplicaMoves(
            replicas,
            file_removal,
            self._homes.unrecord,
            self._homes.record,
            self._bytes_per_second,
            lambda: self._homes.is_available,
        )
        if replicas.has_several:
            replicas.moves, replicas.is_cordoned = self._moves, self._is_cordoned

    def settle(self) -> None:
        """Choose between copies of a replica, by the metadata. Call once the directories have their ids."""
        self._replicas.settle(self._quorum.image.directories.get(self._me, {}))

    def start(self) -> None:
        """Record where the replicas are, and resume interrupted moves. The broker has opened its replicas."""
        if self._replicas.has_several:
            self._quorum.subscribe(self._homes.on_metadata_change)
            self._homes.record()
            self._moves.resume()

    def roles_taken(self) -> None:
        """Record the replicas that were opened."""
        self._homes.record()

    async def close(self) -> None:
        await self._moves.close()
        await self._homes.close()

    def _bytes_per_second(self) -> int:
        return max(int(broker_config(self._settings, self._quorum.image).number(MOVE_RATE)), 1)

    def _is_cordoned(self, directory: LogDirectory) -> bool:
        return directory.path in cordoned_directories(self._quorum.image, self._me)
