"""Leader election and in-sync set changes of one partition, after a broker starts, stops or loses its disk. Pure.

Every function takes one partition and returns it as it is afterwards; the same object if nothing changes. The rules are
those of KRaft's controller: KIP-497, KIP-455, KIP-841 and, for eligible leader replicas, KIP-966.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from cordwood.cluster.metadata.commands import Assignment, BrokerId
from cordwood.cluster.metadata.features import NEWEST_LEVEL
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage

MOVES_WAIT_FOR_ADDED = 2
"""The metadata.version from which a reassignment waits for the replicas that it adds, and for no other."""

REMOVALS_BEGIN_AN_EPOCH = 3
"""The metadata.version from which the removal of a replica begins a new leader epoch."""

KEEPS_ELIGIBLE = 3
"""The metadata.version from which a change of min.insync.replicas empties the ELR only where that is necessary."""

IsAlive = Callable[[BrokerId], bool]
"""Returns whether a broker may lead and be in sync."""


def new_partition(replicas: Assignment, is_alive: IsAlive) -> PartitionImage:
    """Return a partition without records: all alive replicas are in sync; if none is alive, the first one alone."""
    assert replicas, "a partition has at least one replica"
    isr = tuple(filter(is_alive, replicas))
    return PartitionImage(replicas, isr, isr[0]) if isr else PartitionImage(replicas, replicas[:1], NO_LEADER)


def without(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive, min_isr: int) -> PartitionImage:
    """Remove a fenced or stopping broker, whose disk is intact, from the in-sync set, and elect another leader."""
    if broker not in partition.isr and broker != partition.leader:
        return partition
    isr = _but(partition.isr, broker) or partition.isr
    elr = partition.elr
    if len(isr) < min_isr and broker not in isr:
        # No record is committed without this broker from here on, so it still has every committed record.
        elr = _in_order(partition.replicas, {*elr, broker})
    # A leader in controlled shutdown stays leader if there is no other.
    others = {other for other in partition.replicas if other != broker and is_alive(other)} | {partition.leader}
    return _settled(partition, isr, elr, (others - {broker}).__contains__)


def stopping(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive, min_isr: int) -> PartitionImage:
    """As `without`, but the broker stays leader and in sync where no other replica can lead."""
    can_spare = any(other != broker and is_alive(other) for other in (*partition.isr, *partition.elr))
    return without(partition, broker, is_alive, min_isr) if can_spare else partition


def lost(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive) -> PartitionImage:
    """Remove a broker that lost its replica from the in-sync and eligible sets, even where no other replica is left.

    A leader that stays begins a new leader epoch: the progress of the lost replica, and an ISR change that was proposed
    because of it, are no longer valid.
    """
    if broker not in partition.replicas:
        return partition
    isr, elr = _but(partition.isr, broker), _but(partition.elr, broker)
    settled = _settled(partition, isr, elr, lambda other: other != broker and is_alive(other))
    if settled.leader == NO_LEADER or settled.leader_epoch > partition.leader_epoch:
        return settled
    return _led(partition, partition.leader, isr, elr)


def damaged(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive) -> PartitionImage:
    """As `lost` for a replica with damaged batches, but the replica stays where no other replica can lead."""
    others = (other for other in (*partition.isr, *partition.elr) if other != broker)
    return lost(partition, broker, is_alive) if any(map(is_alive, others)) else partition


def unflushed(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive) -> PartitionImage:
    """As `lost` for a replica that may lack unflushed records, if another replica has every committed record.

    The partition waits for that other replica, even if it is not alive. A replica that is the only one in the in-sync
    and eligible sets stays.
    """
    counted_on = {*partition.isr, *partition.elr}
    return lost(partition, broker, is_alive) if broker in counted_on and counted_on != {broker} else partition


def returned(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """Elect a leader for a partition without one, after a broker has returned."""
    if partition.leader != NO_LEADER:
        return partition
    return _settled(partition, partition.isr, partition.elr, is_alive)


def in_sync(partition: PartitionImage, members: Iterable[BrokerId], min_isr: int) -> PartitionImage:
    """Apply a valid in-sync set proposal of the leader."""
    isr = _in_order(partition.replicas, members)
    assert partition.leader in isr, "rule 3: the leader is in the ISR"
    elr: Assignment = ()
    if len(isr) < min_isr:
        left = set(partition.isr) | set(partition.elr)
        elr = _in_order(partition.replicas, left - set(isr))
    return replace(partition, isr=isr, elr=elr, partition_epoch=partition.partition_epoch + 1)


def min_isr_changed(partition: PartitionImage, min_isr: int, level: int = NEWEST_LEVEL) -> PartitionImage:
    """Empty the eligible leader replicas if the in-sync set may commit without them by the new min.insync.replicas.

    If it may not, it could not before either, so that they have every committed record. KIP-966 empties them always: a
    partition whose only in-sync replica then loses its disk has no replica left that may lead.
    """
    if not partition.elr or (level >= KEEPS_ELIGIBLE and len(partition.isr) < min_isr):
        return partition
    return replace(partition, elr=(), partition_epoch=partition.partition_epoch + 1)


def preferred(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """Elect the preferred replica if it is alive and in sync."""
    first = partition.replicas[0]
    if partition.leader == first or first not in partition.isr or not is_alive(first):
        return partition
    return _led(partition, first, partition.isr, partition.elr)


def unclean(partition: PartitionImage, candidate: BrokerId | None, is_alive: IsAlive) -> PartitionImage:
    """Elect a replica that may lack committed records, as an operator asked for by name: an unclean election.

    Only a partition without a leader is changed. The last in-sync replica keeps its records until it truncates to the
    new leader's epoch and catches up (KIP-966).
    """
    if partition.leader != NO_LEADER:
        return partition
    wanted = partition.replicas if candidate is None else (candidate,)
    elected = next((broker for broker in wanted if broker in partition.replicas and is_alive(broker)), None)
    return partition if elected is None else _led(partition, elected, (elected,), ())


def moving(
    partition: PartitionImage, target: Assignment, is_alive: IsAlive, level: int = NEWEST_LEVEL
) -> PartitionImage:
    """Begin a reassignment to `target`, or complete it if all that it adds is in sync.

    A replica in neither the old nor the new assignment is removed immediately. The in-sync set is empty afterwards if
    none of it stays: the caller has to refuse such a reassignment.
    """
    origin = _origin(partition)
    replicas = target + _but_all(origin, target)
    adding, removing = _but_all(target, origin), _but_all(origin, target)
    if (replicas, adding, removing) == (partition.replicas, partition.adding, partition.removing):
        return partition
    return arrived(_reassigned(partition, (replicas, adding, removing), is_alive, level), is_alive, level)


def moved_back(partition: PartitionImage, is_alive: IsAlive, level: int = NEWEST_LEVEL) -> PartitionImage:
    """Cancel the reassignment in progress."""
    if not is_moving(partition):
        return partition
    return _reassigned(partition, (_origin(partition), (), ()), is_alive, level)


def arrived(partition: PartitionImage, is_alive: IsAlive, level: int = NEWEST_LEVEL) -> PartitionImage:
    """Complete the reassignment if every added replica is in sync, and one that stays.

    Up to metadata.version 1 every target replica has to be in sync.
    """
    target = target_of(partition)
    awaited = target if level < MOVES_WAIT_FOR_ADDED else partition.adding
    if not is_moving(partition) or not set(awaited) <= set(partition.isr):
        return partition
    if not set(target) & set(partition.isr):
        return partition
    return _reassigned(partition, (target, (), ()), is_alive, level)


def level_changed(partition: PartitionImage, _min_isr: int) -> PartitionImage:
    """Empty the eligible leader replicas of a reassigned partition: another `commit_size` counts from here on.

    The new partition epoch makes its leader use that size, too.
    """
    if not is_moving(partition):
        return partition
    return replace(partition, elr=(), partition_epoch=partition.partition_epoch + 1)


def commit_size(partition: PartitionImage, min_isr: int, level: int = NEWEST_LEVEL) -> int:
    """Return the size of the in-sync set that may commit, given the topic's min.insync.replicas.

    A reassignment requires at most the number of replicas before it, and after it: otherwise a partition of one replica
    would refuse acks=all until the second one is in sync.
    """
    if level < MOVES_WAIT_FOR_ADDED or not is_moving(partition):
        return min_isr
    replicas = len(partition.replicas)
    return min(min_isr, replicas - len(partition.adding), replicas - len(partition.removing))


def may_commit_without_eligible(partition: PartitionImage, min_isr: int, level: int) -> bool:
    """Return whether records may be committed that the eligible leader replicas do not have."""
    return level >= MOVES_WAIT_FOR_ADDED and len(partition.isr) >= commit_size(partition, min_isr, level)


def target_of(partition: PartitionImage) -> Assignment:
    """Return the replicas after the reassignment in progress: all of them if there is none."""
    return _but_all(partition.replicas, partition.removing)


def is_under_replicated(partition: PartitionImage) -> bool:
    """Return whether fewer replicas are in sync than the partition has, or will have after its reassignment."""
    return len(partition.isr) < len(partition.replicas) - len(partition.removing)


def is_moving(partition: PartitionImage) -> bool:
    """Return whether a reassignment is in progress."""
    return bool(partition.adding or partition.removing)


def _reassigned(
    partition: PartitionImage, assignments: tuple[Assignment, Assignment, Assignment], is_alive: IsAlive, level: int
) -> PartitionImage:
    """Set the replicas, those being added and those being removed. Other brokers leave the in-sync and eligible sets.

    A leader that stays begins a new leader epoch if a replica is removed, as in KRaft: what it knows of the replica is
    no longer valid. Otherwise a broker that is added again, with an empty log, would be in sync by its former reports.
    """
    replicas, adding, removing = assignments
    moved = replace(partition, replicas=replicas, adding=adding, removing=removing)
    isr, elr = _in_order(replicas, partition.isr), _in_order(replicas, partition.elr)
    if partition.leader not in isr:
        settled = _settled(moved, isr, elr, is_alive)
        if settled is not moved:
            return settled
    elif level >= REMOVALS_BEGIN_AN_EPOCH and not set(partition.replicas) <= set(replicas):
        return _led(moved, partition.leader, isr, elr)
    return replace(moved, isr=isr, elr=elr, partition_epoch=partition.partition_epoch + 1)


def _settled(partition: PartitionImage, isr: Assignment, elr: Assignment, may_lead: IsAlive) -> PartitionImage:
    """Set the members. Keep the leader if it may lead; otherwise elect the first member that may."""
    if partition.leader in isr and may_lead(partition.leader):
        epoch = partition.partition_epoch + 1
        return replace(partition, isr=isr, elr=elr, partition_epoch=epoch)
    in_sync_and_alive = tuple(filter(may_lead, isr))
    if in_sync_and_alive:
        return _led(partition, in_sync_and_alive[0], in_sync_and_alive, elr)
    eligible = next(filter(may_lead, elr), None)
    if eligible is not None:
        # The last in-sync replicas have every committed record too, and may be elected later.
        return _led(partition, eligible, (eligible,), _in_order(partition.replicas, {*elr, *isr} - {eligible}))
    if partition.leader == NO_LEADER and (isr, elr) == (partition.isr, partition.elr):
        return partition
    return _led(partition, NO_LEADER, isr, elr)


def _led(partition: PartitionImage, leader: BrokerId, isr: Assignment, elr: Assignment) -> PartitionImage:
    return replace(
        partition,
        isr=isr,
        elr=elr,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def _origin(partition: PartitionImage) -> Assignment:
    """Return the replicas before the reassignment in progress."""
    return _but_all(partition.replicas, partition.adding)


def _in_order(replicas: Assignment, members: Iterable[BrokerId]) -> Assignment:
    wanted = set(members)
    return tuple(broker for broker in replicas if broker in wanted)


def _but(members: Assignment, broker: BrokerId) -> Assignment:
    return tuple(other for other in members if other != broker)


def _but_all(members: Assignment, others: Assignment) -> Assignment:
    return tuple(broker for broker in members if broker not in others)
