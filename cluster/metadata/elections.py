"""Who is in sync with a partition and who leads it, after a broker came, went, or lost its disk. Pure.

Every function takes one partition and returns it as it is afterwards; the same object where nothing changes. The rules
are those of KRaft's controller: KIP-497, KIP-455, KIP-841 and, for eligible leaders, KIP-966.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from cordwood.cluster.metadata.commands import Assignment, BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage

IsAlive = Callable[[BrokerId], bool]
"""Whether a broker may lead and be in sync."""


def new_partition(replicas: Assignment, is_alive: IsAlive) -> PartitionImage:
    """A partition that has no records yet: everyone who is alive has all of them, and else the first is to begin."""
    assert replicas, "a partition has at least one replica"
    isr = tuple(filter(is_alive, replicas))
    return PartitionImage(replicas, isr, isr[0]) if isr else PartitionImage(replicas, replicas[:1], NO_LEADER)


def without(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive, min_isr: int) -> PartitionImage:
    """The broker has gone silent or is about to stop, with its disk intact."""
    if broker not in partition.isr and broker != partition.leader:
        return partition
    isr = _but(partition.isr, broker) or partition.isr
    elr = partition.elr
    if len(isr) < min_isr and broker not in isr:
        # Nothing is committed from here on without it, so it still has everything that is.
        elr = _in_order(partition.replicas, {*elr, broker})
    # A leader that is about to stop goes on for want of another.
    others = {other for other in partition.replicas if other != broker and is_alive(other)} | {partition.leader}
    return _settled(partition, isr, elr, (others - {broker}).__contains__)


def stopping(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive, min_isr: int) -> PartitionImage:
    """As `without`, but where nobody else can lead the broker goes on leading until it is gone."""
    can_spare = any(other != broker and is_alive(other) for other in (*partition.isr, *partition.elr))
    return without(partition, broker, is_alive, min_isr) if can_spare else partition


def bereft(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive) -> PartitionImage:
    """The broker has lost its copy. It counts as having nothing, even where no other replica is left.

    Whoever leads on does so in a new epoch: what it had heard of that copy, and may have proposed because of it, holds
    no more.
    """
    if broker not in partition.replicas:
        return partition
    isr, elr = _but(partition.isr, broker), _but(partition.elr, broker)
    settled = _settled(partition, isr, elr, lambda other: other != broker and is_alive(other))
    if settled.leader == NO_LEADER or settled.leader_epoch > partition.leader_epoch:
        return settled
    return _led(partition, partition.leader, isr, elr)


def damaged(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive) -> PartitionImage:
    """The broker's copy has damaged batches. Where no other can lead it goes on: it is the best there is."""
    others = (other for other in (*partition.isr, *partition.elr) if other != broker)
    return bereft(partition, broker, is_alive) if any(map(is_alive, others)) else partition


def unflushed(partition: PartitionImage, broker: BrokerId, is_alive: IsAlive) -> PartitionImage:
    """The broker's copy may lack what was only in memory. Another that has everything is waited for, if there is one.

    Where every other is behind, it is the best there is, and goes on.
    """
    counted_on = {*partition.isr, *partition.elr}
    return bereft(partition, broker, is_alive) if broker in counted_on and counted_on != {broker} else partition


def returned(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """A broker is alive again: a partition without a leader may have one now."""
    if partition.leader != NO_LEADER:
        return partition
    return _settled(partition, partition.isr, partition.elr, is_alive)


def in_sync(partition: PartitionImage, members: Iterable[BrokerId], min_isr: int) -> PartitionImage:
    """The leader's proposal, which has been found to fit."""
    isr = _in_order(partition.replicas, members)
    assert partition.leader in isr, "rule 3: the leader is in the ISR"
    elr: Assignment = ()
    if len(isr) < min_isr:
        left = set(partition.isr) | set(partition.elr)
        elr = _in_order(partition.replicas, left - set(isr))
    return replace(partition, isr=isr, elr=elr, partition_epoch=partition.partition_epoch + 1)


def without_eligible(partition: PartitionImage, _min_isr: int) -> PartitionImage:
    """What is known of replicas out of the in-sync set holds no more."""
    if not partition.elr:
        return partition
    return replace(partition, elr=(), partition_epoch=partition.partition_epoch + 1)


def preferred(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """Led by the first of its replicas, if that one is in sync."""
    first = partition.replicas[0]
    if partition.leader == first or first not in partition.isr or not is_alive(first):
        return partition
    return _led(partition, first, partition.isr, partition.elr)


def unclean(partition: PartitionImage, candidate: BrokerId | None, is_alive: IsAlive) -> PartitionImage:
    """Led by a replica that may lack committed records, because an operator asked for it by name.

    Only where the partition has no leader. The one that was last in sync has to catch up with it from then on, but is
    not thrown away before that: it keeps what it has until it truncates to the new leader's epoch (KIP-966).
    """
    if partition.leader != NO_LEADER:
        return partition
    wanted = partition.replicas if candidate is None else (candidate,)
    elected = next((broker for broker in wanted if broker in partition.replicas and is_alive(broker)), None)
    return partition if elected is None else _led(partition, elected, (elected,), ())


def moving(partition: PartitionImage, target: Assignment, is_alive: IsAlive) -> PartitionImage:
    """On the way to `target`; there already, where all of that is in sync. Whoever is in neither is left out at once.

    The in-sync set is empty after that if none of it stays: the caller has to refuse such a move.
    """
    origin = _origin(partition)
    replicas = target + _but_all(origin, target)
    adding, removing = _but_all(target, origin), _but_all(origin, target)
    if (replicas, adding, removing) == (partition.replicas, partition.adding, partition.removing):
        return partition
    moved = replace(partition, replicas=replicas, adding=adding, removing=removing)
    return arrived(_among_replicas(moved, is_alive), is_alive)


def moved_back(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """The move is given up."""
    if not is_moving(partition):
        return partition
    return _ended(partition, _origin(partition), is_alive)


def arrived(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """A move is over once everyone it leads to is in sync."""
    target = _but_all(partition.replicas, partition.removing)
    if not is_moving(partition) or not set(target) <= set(partition.isr):
        return partition
    return _ended(partition, target, is_alive)


def is_moving(partition: PartitionImage) -> bool:
    """Whether a move is under way."""
    return bool(partition.adding or partition.removing)


def _ended(partition: PartitionImage, replicas: Assignment, is_alive: IsAlive) -> PartitionImage:
    return _among_replicas(replace(partition, replicas=replicas, adding=(), removing=()), is_alive)


def _among_replicas(partition: PartitionImage, is_alive: IsAlive) -> PartitionImage:
    """Its replicas are new: whoever is none any more is not in sync either, and does not lead."""
    isr, elr = _in_order(partition.replicas, partition.isr), _in_order(partition.replicas, partition.elr)
    if partition.leader not in isr:
        settled = _settled(partition, isr, elr, is_alive)
        if settled is not partition:
            return settled
    return replace(partition, isr=isr, elr=elr, partition_epoch=partition.partition_epoch + 1)


def _settled(partition: PartitionImage, isr: Assignment, elr: Assignment, may_lead: IsAlive) -> PartitionImage:
    """With these members, led as before where that is possible, otherwise by the first that may lead."""
    if partition.leader in isr and may_lead(partition.leader):
        epoch = partition.partition_epoch + 1
        return replace(partition, isr=isr, elr=elr, partition_epoch=epoch)
    in_sync_and_alive = tuple(filter(may_lead, isr))
    if in_sync_and_alive:
        return _led(partition, in_sync_and_alive[0], in_sync_and_alive, elr)
    eligible = next(filter(may_lead, elr), None)
    if eligible is not None:
        # Whoever was last in sync has everything too, and may be wanted again.
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
    """The replicas as they are without the move that is under way."""
    return _but_all(partition.replicas, partition.adding)


def _in_order(replicas: Assignment, members: Iterable[BrokerId]) -> Assignment:
    wanted = set(members)
    return tuple(broker for broker in replicas if broker in wanted)


def _but(members: Assignment, broker: BrokerId) -> Assignment:
    return tuple(other for other in members if other != broker)


def _but_all(members: Assignment, others: Assignment) -> Assignment:
    return tuple(broker for broker in members if broker not in others)
