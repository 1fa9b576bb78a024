"""ISR changes of this broker's leaders (KIP-497): batched, proposed to the metadata log, settled by partition epoch."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from cordwood.cluster.metadata.commands import AlterPartitions, BrokerId, IsrChange
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.replication.partition import Partition
from cordwood.replication.tasks import report

CHANGES_PER_COMMAND = 256
"""Each broker decodes a command in one step of its event loop: so many changes take some 3 ms."""
CHANGES_PER_STEP = 64
"""Partitions per event-loop iteration, while a command is built."""
RETRY_S = 0.2

_events = structlog.get_logger("isr")


class IsrChanges:
    """ISR proposals. At most one command is in flight; changes that arrive meanwhile go with the next command."""

    def __init__(self, quorum: Quorum, broker_id: int, epoch_of_link: Callable[[int], int | None]) -> None:
        """`epoch_of_link` returns the broker epoch of a connected follower; None if the follower is not connected."""
        self._quorum, self._broker_id, self._epoch_of_link = quorum, BrokerId(broker_id), epoch_of_link
        self._wanted: dict[Partition, None] = {}
        self._task: asyncio.Task[None] | None = None

    def want(self, partition: Partition) -> None:
        """Queue a partition. Its leader has an ISR change to propose, or will have one when the command is built."""
        self._wanted[partition] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._propose_wanted(), name="isr changes")

    def may_join(self, broker_id: int) -> bool:
        """Return True if a follower is alive in the incarnation that is connected to this broker (rule 6, KIP-903)."""
        image = self._quorum.image
        known = image.brokers.get(BrokerId(broker_id))
        return known is not None and known.is_alive and known.epoch == self._epoch_of_link(broker_id)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _propose_wanted(self) -> None:
        try:
            while self._wanted:
                partitions = list(self._wanted)[:CHANGES_PER_COMMAND]
                for partition in partitions:
                    del self._wanted[partition]
                changes: dict[Partition, IsrChange] = {}
                for number, partition in enumerate(partitions, 1):
                    with partition.contained():
                        if (change := self._change(partition)) is not None:
                            changes[partition] = change
                    if number % CHANGES_PER_STEP == 0:
                        await asyncio.sleep(0)
                if changes:
                    await self._propose(changes)
        finally:
            self._task = None

    async def _propose(self, changes: dict[Partition, IsrChange]) -> None:
        me = self._quorum.image.brokers.get(self._broker_id)
        if me is None:
            return
        command = AlterPartitions(self._broker_id, me.epoch, tuple(changes.values()))
        while True:
            try:
                await self._quorum.propose(command)
            except CommandRefused as refusal:
                _events.warning("isr.refused", reason=refusal.message)
            except Exception as failure:
                # The command may have been applied: both sets count until the outcome is known (rule 5). No other code
                # retries the command.
                _events.warning("isr.unknown", partitions=len(changes), reason=str(failure))
                if not isinstance(failure, QuorumFailed):
                    report("the ISR changes could not be proposed", failure)
                await asyncio.sleep(RETRY_S)
                continue
            break
        for partition, change in changes.items():
            self._settle(partition, change)

    def _settle(self, partition: Partition, change: IsrChange) -> None:
        """Roll back a change that was not applied: it left the partition epoch as it was.

        The image has the outcome. The replica may get the new assignment later, and counts on both sets until then.
        """
        leading, known = partition.leading, self._quorum.image.partition(change.topic_id, change.partition)
        if (
            leading is not None
            and partition.leader_epoch == change.leader_epoch
            and known is not None
            and known.partition_epoch == change.partition_epoch
        ):
            leading.view.refused(change.partition_epoch)

    def _change(self, partition: Partition) -> IsrChange | None:
        leading = partition.leading
        proposed = None if leading is None else leading.propose_isr(self.may_join)
        if leading is None or proposed is None:
            return None
        assignment = leading.view.assignment
        members = tuple((BrokerId(member), self._known_epoch(member)) for member in sorted(proposed))
        _events.info(
            "isr.proposed",
            topic=partition.topic,
            partition=partition.index,
            isr=_text(proposed),
            was=_text(assignment.isr),
        )
        return IsrChange(
            partition.topic_id, partition.index, assignment.leader_epoch, assignment.partition_epoch, members
        )

    def _known_epoch(self, broker_id: int) -> int:
        known = self._quorum.image.brokers.get(BrokerId(broker_id))
        return -1 if known is None else known.epoch


def _text(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))
