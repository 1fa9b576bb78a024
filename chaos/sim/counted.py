"""Checks that leaders count only what their followers have on disk (rules 1, 4 and 5)."""

from collections.abc import Iterator, Sequence, Set
from typing import Protocol

from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.metadata.image import Image, PartitionImage
from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.replication.leader import LeaderView
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.storage.errors import DamagedLog
from cordwood.storage.log import Log

Name = tuple[str, int]
"""Topic and partition: cheaper to look up than the topic's id, whose hash is computed each time."""
Found = Iterator[tuple[str, str]]


class ReplicaHolder(Protocol):
    """A running broker with its replicas."""

    @property
    def broker_id(self) -> int: ...
    @property
    def replicas(self) -> Replicas: ...
    @property
    def damage(self) -> DamageRegister: ...


def is_kept(disk: SimulatedDisk, log: Log) -> bool:
    """Return whether everything below the flushed end of a log survives any power cut (rule 1)."""
    for segment in log.segments:
        if disk.has_harmed(segment.path):
            # The segment was durable before the disk lost a part of it.
            continue
        end = min(log.flushed_end, segment.end_offset)
        try:
            length = segment.size if end == segment.end_offset else segment.locate(max(end, segment.base_offset))
        except DamagedLog:
            continue
        if length and not disk.is_durable(segment.path, length):
            return False
    return True


def everybody_has(where: str, view: LeaderView, high_watermark: int) -> Found:
    """Check, after the high watermark moved, that by the leader's view all of the maximal ISR has flushed it."""
    for member in sorted(view.maximal_isr - {view.me}):
        known = view.followers.get(member)
        if known is None or known.flushed_end < high_watermark:
            has = "nothing" if known is None else known.flushed_end
            yield "rule-5", f"{where} is committed up to {high_watermark}, and is known to have {has} on {member}"


def followers_are_as_counted(brokers: Sequence[ReplicaHolder], image: Image, names: Set[Name] | None = None) -> Found:
    """Check that each in-sync replica has what its leader counts, in the leader's epochs.

    `names` limits the check to these partitions.
    """
    by_id = {broker.broker_id: broker for broker in brokers if not broker.damage.under_repair}
    for leader in by_id.values():
        for partition in leader.replicas:
            if not partition.is_leader or partition.topic == LOSSY_TOPIC or partition.is_offline:
                continue
            if names is not None and (partition.topic, partition.index) not in names:
                continue
            agreed = image.partition(partition.topic_id, partition.index)
            if agreed is not None and partition.leads_in(agreed.leader_epoch):
                yield from _members_are_as_counted(partition, agreed, by_id)


def _members_are_as_counted(leader: Partition, agreed: PartitionImage, brokers: dict[int, ReplicaHolder]) -> Found:
    view = leader.leader.view
    for member in agreed.isr:
        counted, broker = view.followers.get(member), brokers.get(member)
        held = None if broker is None else broker.replicas.with_id(leader.topic_id, leader.index)
        # A follower of another epoch has not begun to follow, or belongs to a new incarnation that will begin anew.
        if counted is None or held is None or held.is_offline or held.leader_epoch != leader.leader_epoch:
            continue
        where, end = f"{leader.topic}/{leader.index}", counted.flushed_end
        if held.ack_end < end:
            yield "rule-5", f"{where} is counted up to {end} on broker {member}, which has {held.ack_end}"
            continue
        start = max(held.log.log_start, leader.log.log_start)
        if _epochs_between(held.log, start, end) != _epochs_between(leader.log, start, end):
            yield "rule-4", f"{where} on broker {member} is counted up to {end}, and its epochs are not its leader's"


def _epochs_between(log: Log, start: int, end: int) -> list[tuple[int, int]]:
    """Return the epoch starts above `start`, where both logs begin: old segments are deleted at different times.

    A follower of a compacted log does not learn of epochs of which no record is left.
    """
    if log.config.compacted:
        return []
    return [(entry.epoch, entry.offset) for entry in log.epochs if start < entry.offset < end]
