"""Admission checks of metadata commands: compare-and-set, live incarnations, no lost disks (rules 6 to 8)."""

from collections.abc import Iterator
from uuid import UUID

from cordwood.chaos.sim.images import changes_fit
from cordwood.cluster.metadata.commands import (
    AlterPartitions,
    Command,
    DropReplicas,
    FenceBroker,
    IsrChange,
    RegisterBroker,
    ReportUnflushed,
    UnfenceBroker,
)
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage


def misfits(before: Image, command: Command, after: Image) -> Iterator[str]:
    """Yield a sentence for each part of an applied command that should have been refused."""
    yield from (sentence for _, sentence in changes_fit(before, after))
    if isinstance(command, RegisterBroker):
        yield from _counts_on_lost_disks(before, command, after)
    if isinstance(command, FenceBroker) and all(partition.isr for partition in _partitions(before)):
        yield from _silence_empties(after)
    if not isinstance(command, AlterPartitions | DropReplicas | FenceBroker | ReportUnflushed | UnfenceBroker):
        return
    epoch = before.brokers[command.broker_id].epoch
    if epoch != command.broker_epoch:
        yield f"rule 6: {command} was taken, and broker {command.broker_id} is in epoch {epoch}"
    if isinstance(command, AlterPartitions):
        for change in command.changes:
            yield from _misfits_of(change, command, before, after)
    if isinstance(command, DropReplicas):
        yield from _counts_on_dropped(before, command, after)
    if isinstance(command, ReportUnflushed):
        yield from _prefers_unflushed(command, after)


def not_taken_in(before: Image, command: Command) -> Iterator[IsrChange]:
    """Yield current ISR changes that add a broker that is not alive, or of another incarnation (rule 6)."""
    if not isinstance(command, AlterPartitions):
        return
    for change in command.changes:
        old = before.partition(change.topic_id, change.partition)
        if old is None or (old.leader, old.leader_epoch, old.partition_epoch) != (
            command.broker_id,
            change.leader_epoch,
            change.partition_epoch,
        ):
            continue
        joining = [(before.brokers[member], epoch) for member, epoch in change.isr if member not in old.isr]
        if not all(known.is_alive and known.epoch == epoch for known, epoch in joining):
            yield change


def _counts_on_lost_disks(before: Image, command: RegisterBroker, after: Image) -> Iterator[str]:
    """Rule 8: a broker that registers with another disk has no data."""
    known = before.brokers.get(command.broker_id)
    if known is None or set(known.log_dirs) <= set(command.log_dirs):
        return
    recorded = before.directories.get(command.broker_id, {})
    for place, partition in _places(after):
        # What is known to lie in another directory is still there.
        is_lost = recorded.get(place) not in command.log_dirs
        if is_lost and command.broker_id in (*partition.isr, *partition.elr):
            yield f"rule 8: broker {command.broker_id} has lost its disk, and is counted on in {partition}"


def _silence_empties(after: Image) -> Iterator[str]:
    """Rule 8, KIP-966: a silent broker loses no data, so the last in-sync replica stays in the in-sync set."""
    for partition in _partitions(after):
        if not partition.isr:
            yield f"rule 8: {partition} has no replica in sync, and no disk was lost"


def _places(image: Image) -> Iterator[tuple[tuple[UUID, int], PartitionImage]]:
    for topic in image.topics_by_id.values():
        for index, partition in enumerate(topic.partitions):
            yield (topic.id, index), partition


def _partitions(image: Image) -> Iterator[PartitionImage]:
    return (partition for topic in image.topics_by_id.values() for partition in topic.partitions)


def _counts_on_dropped(before: Image, command: DropReplicas, after: Image) -> Iterator[str]:
    """Rule 8: after a replica was dropped, the leader has a new epoch, and the dropped replica is not counted."""
    for topic, index in command.partitions:
        old, new = before.partition(topic, index), after.partition(topic, index)
        if old is None or new is None or old == new:
            continue
        is_counted_on = command.broker_id in (*new.isr, *new.elr)
        if is_counted_on or (new.leader != NO_LEADER and new.leader_epoch == old.leader_epoch):
            yield f"rule 8: broker {command.broker_id} has lost its replica, and from {old} came {new}"


def _prefers_unflushed(command: ReportUnflushed, after: Image) -> Iterator[str]:
    """KIP-966: a replica with unflushed data counts only where no other replica does."""
    for topic, index in command.partitions:
        partition = after.partition(topic, index)
        counted_on = set() if partition is None else {*partition.isr, *partition.elr}
        if command.broker_id in counted_on and counted_on != {command.broker_id}:
            yield f"rule 8: broker {command.broker_id} has lost its memory, and is counted on in {partition}"


def _misfits_of(change: IsrChange, command: AlterPartitions, before: Image, after: Image) -> Iterator[str]:
    old, new = (image.partition(change.topic_id, change.partition) for image in (before, after))
    if old is None or new is None or old == new:
        return
    if (old.leader, old.leader_epoch, old.partition_epoch) != (
        command.broker_id,
        change.leader_epoch,
        change.partition_epoch,
    ):
        yield f"rule 7: broker {command.broker_id} has changed {old} by {change}"
    for member, epoch in change.isr:
        known = before.brokers[member]
        if member not in old.isr and (known.is_fenced or known.epoch != epoch):
            yield f"rule 6: broker {member} was taken in as of epoch {epoch}, and is {known}"
