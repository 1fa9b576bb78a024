"""Stop check of a broker: partitions and quorum that would lose availability or durability without it."""

from collections.abc import Iterator, Sequence

from cordwood.cluster.operations.view import ClusterView, PartitionInfo

NAMES_SHOWN = 3


def reasons_against(view: ClusterView, broker_id: int) -> list[str]:
    """Return the reasons against stopping a broker now, one sentence each; empty if it may stop."""
    broker = view.broker(broker_id)
    if broker is None:
        known = ", ".join(str(other.broker_id) for other in view.brokers)
        return [f"there is no broker {broker_id}: the cluster has {known}"]
    if not broker.is_alive:
        return [f"broker {broker_id} is already down"]
    return [*_partitions_lost(view, broker_id), *_quorum_lost(view, broker_id)]


def _partitions_lost(view: ClusterView, broker_id: int) -> Iterator[str]:
    without: list[PartitionInfo] = []
    too_few: list[PartitionInfo] = []
    for partition in view.partitions:
        left = (partition.isr & _alive(view)) - {broker_id}
        if broker_id in partition.isr and len(left) < max(partition.min_isr, 1):
            (too_few if left else without).append(partition)
    if without:
        yield f"{_left(without)} without an in-sync replica: it could not be read or written{_named(without)}"
    if too_few:
        yield f"{_left(too_few)} below min.insync.replicas: writes with acks=all would be refused{_named(too_few)}"


def _quorum_lost(view: ClusterView, broker_id: int) -> Iterator[str]:
    voters = view.quorum.voters
    left = len((_alive(view) & set(voters)) - {broker_id})
    majority = len(voters) // 2 + 1
    if broker_id in voters and left < majority:
        yield (
            f"the metadata quorum would have {left} of its {len(voters)} voters and needs {majority}: no leader"
            " could be elected and no topic created"
        )


def _alive(view: ClusterView) -> frozenset[int]:
    return frozenset(broker.broker_id for broker in view.brokers if broker.is_alive)


def _left(partitions: Sequence[PartitionInfo]) -> str:
    return f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'} would be left"


def _named(partitions: Sequence[PartitionInfo]) -> str:
    names = [partition.name for partition in partitions[:NAMES_SHOWN]]
    return f" ({', '.join(names)}{', …' if len(partitions) > NAMES_SHOWN else ''})"
