"""Replication invariants of docs/rules.md that are observable in the brokers, checked periodically during a run.

There is one small function per rule. Each compares the current state of the running brokers with the state observed
before, and yields a sentence per violation. The other rules are checked in client observations (cordwood.chaos.checks),
or at the end, when the cluster has to recover completely (rule 11).
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.chaos.sim.committed import CommittedBatches
from cordwood.chaos.sim.counted import Name, everybody_has, followers_are_as_counted
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.images import changes_fit
from cordwood.chaos.sim.left_behind import LeaderRoles
from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.cluster.repairs.damage import is_counted_on
from cordwood.replication.partition import Partition
from cordwood.storage.types import TopicPartition

Place = tuple[UUID, int]
"""A partition: topic id and partition index."""

_FLUSHED_END = attrgetter("flushed_end")
_partition_of = functools.cache(partition_of)
"""Kept, because groups are few and looked at all the time."""

Found = Iterator[tuple[str, str]]
"""The kind of a violation, named after its rule, and a sentence."""


@dataclass(slots=True)
class ObservedOffsets:
    """By group and partition: the leader epoch of the observation, and the committed offset (rule 10)."""

    _offsets: dict[str, dict[TopicPartition, tuple[int, int]]] = field(default_factory=dict)

    def compare(self, broker: Watched, image: Image) -> Found:
        """Compare a coordinator's committed offsets with those of earlier leader epochs.

        Within one leader epoch a commit of unknown outcome may take effect late, and lower an offset. The history
        checker decides such cases.
        """
        topic = image.topics_by_name.get(CONSUMER_OFFSETS)
        if topic is None:
            return
        for group, offsets in broker.groups.known():
            index = _partition_of(group.group_id, len(topic.partitions))
            held, epoch = broker.replicas.get(CONSUMER_OFFSETS, index), topic.partitions[index].leader_epoch
            if held is None or not held.leads_in(epoch):
                continue
            now = {place: committed.offset for place, committed in offsets.items()}
            known = self._offsets.setdefault(group.group_id, {})
            for place, (before_epoch, offset) in known.items():
                if before_epoch < epoch and now.get(place, -1) < offset:
                    yield (
                        "rule-10",
                        f"group {group.group_id} had committed {offset} in {place}, and broker {broker.broker_id}, "
                        f"its next coordinator, has {now.get(place)}",
                    )
            known.update({place: (epoch, offset) for place, offset in now.items()})


@dataclass(slots=True)
class Seen:
    """The state observed so far, to which later states are compared."""

    committed: dict[Place, CommittedBatches] = field(default_factory=dict)
    images: dict[int, Image] = field(default_factory=dict)
    """The metadata image of each index."""
    compared: dict[int, Image] = field(default_factory=dict)
    """By broker: the image that was compared last."""
    newest: Image = field(default_factory=Image)
    leaders: dict[tuple[Place, int], int] = field(default_factory=dict)
    """The leader of a partition in a leader epoch."""
    controllers: dict[int, int] = field(default_factory=dict)
    """The active controller of a Raft term."""
    replicas: dict[Partition, tuple[int, int, int]] = field(default_factory=dict)
    """By replica: high watermark, leader epoch, and partition epoch if it leads."""
    min_isrs: dict[Partition, int] = field(default_factory=dict)
    """By leader: `min.insync.replicas`, which an administrator may change."""
    log_ends: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    """By leader: leader epoch and log end."""
    states: dict[Partition, tuple[object, ...]] = field(default_factory=dict)
    """By replica: its state when all rules were last checked."""
    roles: LeaderRoles = field(default_factory=LeaderRoles)
    offsets: ObservedOffsets = field(default_factory=ObservedOffsets)
    """The committed offsets that coordinators returned for their groups."""
    leaders_ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and partition: the largest high watermark of any leader."""

    def note_leaders_ends(self, brokers: list[Watched], topic: str) -> None:
        """Record the high watermarks of leaders, including replicas that led at the previous check."""
        # The leaders of the previous check include replicas that were moved away since.
        known = self.log_ends
        for partition in known:
            if partition.topic == topic:
                self.note_end(partition)
        for broker in brokers:
            get = broker.replicas.get
            for index in broker.replicas.indexes(topic):
                replica = get(topic, index)
                if replica is not None and replica.leading is not None and replica not in known:
                    self.note_end(replica)

    def note_end(self, partition: Partition) -> None:
        """Record the high watermark of a replica that leads, or led at the previous check."""
        place, end = (partition.topic, partition.index), partition.high_watermark
        if end > self.leaders_ends.get(place, 0):
            self.leaders_ends[place] = end

    def leaders_end(self, brokers: list[Watched], topic: str, index: int) -> int:
        """Return the largest high watermark that any leader of a partition has had."""
        self.note_leaders_ends(brokers, topic)
        return self.leaders_ends.get((topic, index), 0)


def look(brokers: list[Watched], disks: Mapping[int, SimulatedDisk], seen: Seen) -> Found:
    """Check every rule on all brokers once. A replica whose state is unchanged since the last check is skipped."""
    before = seen.newest
    for broker in brokers:
        yield from _metadata_is_one(broker, seen)
        yield from _one_controller_a_term(broker, seen)
    has_new_metadata = seen.newest is not before
    moved: set[Name] = set()
    for broker in brokers:
        is_repairing = bool(broker.damage.under_repair)
        for partition in _accounted_for(broker):
            if seen.roles.has_waiters_of_the_past(partition):
                yield "promise-3", f"{_name(partition)} is led by broker {broker.broker_id} no more, and somebody waits"
            state = _state(partition, is_repairing)
            if seen.states.get(partition) != state:
                moved.add((partition.topic, partition.index))
                yield from _look_at_replica(broker, partition, disks[broker.broker_id], seen)
                # A comparison that failed on a read error is repeated at the next check.
                if partition.is_offline or seen.committed[_place(partition)].has_compared(partition):
                    seen.states[partition] = state
    if has_new_metadata or moved:
        yield from _look_across_replicas(brokers, None if has_new_metadata else moved, seen)
    for broker in brokers:
        yield from seen.offsets.compare(broker, seen.newest)


def _look_across_replicas(brokers: list[Watched], names: set[Name] | None, seen: Seen) -> Found:
    """Check the rules that compare replicas with each other or with the metadata; only `names` unless None."""
    for broker in brokers:
        for partition in _accounted_for(broker):
            if (names is None or (partition.topic, partition.index) in names) and not partition.is_offline:
                yield from _in_sync_means_having_it(broker, partition, seen)
    yield from followers_are_as_counted(brokers, seen.newest, names)


def _look_at_replica(broker: Watched, partition: Partition, disk: SimulatedDisk, seen: Seen) -> Found:
    """Check the rules that one replica can violate alone, by the changes since its last check."""
    yield from _one_leader_an_epoch(broker, partition, seen)
    yield from _nothing_goes_back(broker, partition, seen)
    yield from _leaders_keep_all(broker, partition, seen)
    if not partition.is_offline:
        yield from _committed_is_final(broker, partition, disk, seen)


def _state(partition: Partition, is_repairing: bool) -> tuple[object, ...]:
    """Return all fields of a replica that the rules depend on, except its waiters."""
    leading, log = partition.leading, partition.log
    view = None if leading is None else leading.view
    return (
        partition.high_watermark,
        partition.leader_epoch,
        -1 if view is None else view.assignment.partition_epoch,
        log.log_end,
        log.flushed_end,
        partition.ack_end,
        () if view is None else tuple(map(_FLUSHED_END, view.followers.values())),
        partition.error is None,
        is_repairing,
    )


def _accounted_for(broker: Watched) -> list[Partition]:
    """Return the replicas that must not lose committed records."""
    return [partition for partition in broker.replicas if partition.topic != LOSSY_TOPIC]


def _metadata_is_one(broker: Watched, seen: Seen) -> Found:
    """Raft: every broker has the same image at the same index, and each image may follow from the one before."""
    image = broker.quorum.image
    if seen.compared.get(broker.broker_id) is image:
        return
    seen.compared[broker.broker_id] = image
    known = seen.images.setdefault(image.index, image)
    if known != image:
        yield "metadata-divergence", f"broker {broker.broker_id} has other metadata at index {image.index}"
    if known is image and image.index > seen.newest.index:
        yield from changes_fit(seen.newest, image)
        seen.newest = image


def _one_controller_a_term(broker: Watched, seen: Seen) -> Found:
    quorum = broker.quorum
    if quorum.is_leader and seen.controllers.setdefault(quorum.term, broker.broker_id) != broker.broker_id:
        yield "two-controllers", f"brokers {broker.broker_id} and {seen.controllers[quorum.term]}: term {quorum.term}"


def _one_leader_an_epoch(broker: Watched, partition: Partition, seen: Seen) -> Found:
    """Rule 3."""
    if partition.is_leader:
        key = (_place(partition), partition.leader_epoch)
        known = seen.leaders.setdefault(key, broker.broker_id)
        if known != broker.broker_id:
            epoch = partition.leader_epoch
            yield "rule-3", f"brokers {known} and {broker.broker_id} lead {_name(partition)} in epoch {epoch}"


def _may_lack_an_epoch(broker: Watched, partition: Partition, seen: Seen) -> bool:
    """Return whether a follower may truncate committed records that compaction has removed elsewhere.

    A leader whose log was copied after all records of a leader epoch had been replaced does not know of that epoch: a
    follower that ends in it truncates to its beginning (rule 4), as in Kafka. Replicas in sync have later records.
    """
    known = seen.newest.partition(partition.topic_id, partition.index)
    return partition.log.config.compacted and known is not None and not is_counted_on(known, broker.broker_id)


def _nothing_goes_back(broker: Watched, partition: Partition, seen: Seen) -> Found:
    """Rules 3 and 7, and promise 2, for one replica of one incarnation of a broker."""
    view = None if partition.leading is None else partition.leading.view
    now = (partition.high_watermark, partition.leader_epoch, -1 if view is None else view.assignment.partition_epoch)
    before = seen.replicas.get(partition, (-1, -1, -1))
    seen.replicas[partition] = now
    where = f"{_name(partition)} on broker {broker.broker_id}"
    # A replica with a damaged end is truncated and fetched again. Until then it is in no in-sync set (rule 8).
    is_repairing = broker.damage.found > 0 and view is None
    if now[0] < before[0] and not is_repairing and not _may_lack_an_epoch(broker, partition, seen):
        yield "rule-2", f"the watermark of {where} went from {before[0]} to {now[0]}"
    if now[1] < before[1]:
        yield "rule-3", f"the leader epoch of {where} went from {before[1]} to {now[1]}"
    if now[1] == before[1] and -1 < now[2] < before[2]:
        yield "rule-7", f"the partition epoch of {where} went from {before[2]} to {now[2]}"
    min_isr = -1 if view is None else view.assignment.min_isr
    has_same_min_isr = seen.min_isrs.get(partition, min_isr) == min_isr
    seen.min_isrs[partition] = min_isr
    is_same = now[2] == before[2] and has_same_min_isr
    if is_same and view is not None and not view.has_enough_replicas and now[0] > before[0]:
        yield "rule-5", f"{where} was committed from {before[0]} to {now[0]} with only {sorted(view.isr)} in sync"
    if before[2] > -1 and now[1] == before[1] and now[0] > before[0] and view is not None:
        yield from everybody_has(where, view, now[0])
    if partition.high_watermark > partition.log.log_end and not partition.is_offline:
        yield "rule-4", f"{where} was truncated below its watermark {now[0]}, to {partition.log.log_end}"


def _leaders_keep_all(broker: Watched, partition: Partition, seen: Seen) -> Found:
    """Rule 4: only followers truncate."""
    if not partition.is_leader:
        if seen.log_ends.pop(partition, None) is not None:
            seen.note_end(partition)
        return
    now = partition.leader_epoch, partition.log.log_end
    before = seen.log_ends.get(partition, now)
    seen.log_ends[partition] = now
    if now[0] == before[0] and now[1] < before[1]:
        yield "rule-4", f"{_name(partition)} went from {before[1]} to {now[1]} on its leader, broker {broker.broker_id}"


def _committed_is_final(broker: Watched, partition: Partition, disk: SimulatedDisk, seen: Seen) -> Found:
    """Rules 2 and 9: all replicas have equal batches below the high watermark, and producer sequences have no gap."""
    place = _place(partition)
    committed = seen.committed.get(place)
    if committed is None:
        committed = seen.committed[place] = CommittedBatches(_name(partition))
    yield from committed.compare(broker.broker_id, partition, disk)


def _in_sync_means_having_it(broker: Watched, partition: Partition, seen: Seen) -> Found:
    """Rules 1, 6 and 8: a running in-sync replica has flushed everything that any leader considered committed."""
    end = seen.committed[_place(partition)].end
    if partition.log.flushed_end >= end or broker.damage.under_repair:
        return
    image = seen.newest
    agreed = image.partition(partition.topic_id, partition.index)
    me = image.brokers.get(broker.broker_id)
    if agreed is not None and me is not None and broker.broker_id in agreed.isr and not me.is_fenced:
        has, where = partition.log.flushed_end, _name(partition)
        yield "rule-1", f"broker {broker.broker_id} is in sync in {where} with {has} on disk, and {end} is committed"


def _place(partition: Partition) -> Place:
    return partition.topic_id, partition.index


def _name(partition: Partition) -> str:
    return f"{partition.topic}/{partition.index}"
