"""Record of the log directory of each replica of this broker, for brokers with several (KIP-858).

A broker that registers without one of its directories then loses only what lay there. A replica that is not recorded
counts as lost with any directory, so that no acknowledgement has to wait for its record.
"""

import asyncio
from uuid import UUID

import structlog

from cordwood.cluster.metadata.commands import AssignReplicasToDirs, BrokerId
from cordwood.cluster.metadata.directory_changes import UNKNOWN
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import Quorum, QuorumUnavailable
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks

REPLICAS_PER_COMMAND = 1000
GATHER_S = 0.1
"""Time in which replicas gather for one command."""
RETRY_S = 0.5

_events = structlog.get_logger("log_directory")


class ReplicaHomes:
    """The record of one broker."""

    def __init__(self, quorum: Quorum, broker_id: int, replicas: Replicas) -> None:
        self._quorum, self._me, self._replicas = quorum, BrokerId(broker_id), replicas
        self._lock = asyncio.Lock()
        self._is_recording = False
        self._tasks = Tasks()

    @property
    def is_available(self) -> bool:
        """Whether every broker of the cluster can read the record."""
        return self._quorum.image.metadata_version >= AssignReplicasToDirs.LEVEL

    def on_metadata_change(self, _old: Image, _new: Image) -> None:
        """Record replicas that were opened meanwhile. The quorum calls this after `Assignments.follow`."""
        self.record()

    def record(self) -> None:
        """Record the directories of `Replicas.unrecorded` soon."""
        if self._replicas.unrecorded and not self._is_recording and self.is_available:
            self._is_recording = True
            self._tasks.spawn(self._record(), "record of log directories")

    async def unrecord(self, partition: Partition) -> None:
        """Return once the metadata does not say where a replica is. Raises CommandRefused, QuorumFailed."""
        async with self._lock:
            self._replicas.unrecorded.pop(partition, None)
            await self._propose([(partition.topic_id, partition.index, UNKNOWN)])

    async def close(self) -> None:
        await self._tasks.close()

    async def _record(self) -> None:
        unrecorded = self._replicas.unrecorded
        try:
            while unrecorded:
                await asyncio.sleep(GATHER_S)
                async with self._lock:
                    some = list(unrecorded)[:REPLICAS_PER_COMMAND]
                    for partition in some:
                        del unrecorded[partition]
                    await self._propose([(one.topic_id, one.index, one.directory.id) for one in some])
        except CommandRefused as refused:
            # Another incarnation of this broker has registered.
            _events.warning("replicas.not_recorded", reason=str(refused))
        finally:
            self._is_recording = False

    async def _propose(self, rows: list[tuple[UUID, int, str]]) -> None:
        while (me := self._quorum.image.brokers.get(self._me)) is not None:
            image = self._quorum.image
            known = image.directories.get(self._me, {})
            changed = tuple(
                (topic_id, index, directory)
                for topic_id, index, directory in rows
                if image.partition(topic_id, index) is not None and known.get((topic_id, index), UNKNOWN) != directory
            )
            if not changed:
                return
            try:
                await self._quorum.propose(AssignReplicasToDirs(self._me, me.epoch, changed))
            except QuorumUnavailable:
                await asyncio.sleep(RETRY_S)
            else:
                return
