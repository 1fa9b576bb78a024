"""Unflushed replicas: those with flush.policy=os after a power cut, not counted on before they have caught up."""

import asyncio
from uuid import UUID

import structlog

from cordwood.cluster.metadata.commands import BrokerId, ReportUnflushed
from cordwood.cluster.metadata.quorum import Quorum, QuorumUnavailable
from cordwood.replication.replicas import Replicas
from cordwood.storage.config import FlushPolicy

REPLICAS_PER_COMMAND = 1000
RETRY_S = 0.2

_events = structlog.get_logger("replicas")


class UnflushedReplicas:
    """The unflushed replicas of one broker, found by the run marks of its log directories."""

    def __init__(self, quorum: Quorum, broker_id: int, replicas: Replicas) -> None:
        self._quorum, self._me, self._replicas = quorum, BrokerId(broker_id), replicas

    async def declared(self) -> None:
        """Report the replicas that may lack acknowledged records. Return once the metadata has the report.

        Call after all replicas were opened, and before this broker is unfenced, which lets it lead. Raises
        CommandRefused if another broker has registered with this id.
        """
        places = [
            (partition.topic_id, partition.index)
            for partition in self._replicas
            if partition.directory.run_mark.has_lost_memory and partition.log.config.flush_policy is FlushPolicy.OS
        ]
        if places:
            _events.warning("replicas.unflushed", partitions=len(places))
        for begin in range(0, len(places), REPLICAS_PER_COMMAND):
            await self._report(tuple(places[begin : begin + REPLICAS_PER_COMMAND]))
        for directory in self._replicas.directories:
            directory.declared()

    async def _report(self, places: tuple[tuple[UUID, int], ...]) -> None:
        while (me := self._quorum.image.brokers.get(self._me)) is not None:
            try:
                await self._quorum.propose(ReportUnflushed(self._me, me.epoch, places))
            except QuorumUnavailable:
                await asyncio.sleep(RETRY_S)
            else:
                return
