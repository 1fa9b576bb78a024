"""Stop check of brokers: partitions and quorum that would lose availability or durability without them."""

from collections.abc import Iterator, Sequence, Set

from cordwood.cluster.operations.view import ClusterView, PartitionInfo

NAMES_SHOWN = 3


def brokers_on(view: ClusterView, host: str) -> frozenset[int]:
    """Return the brokers of a host, which is their `broker.rack`."""
    return frozenset(broker.broker_id for broker in view.brokers if broker.rack == host)


def reasons_against(view: ClusterView, brokers: Set[int]) -> list[str]:
    """Return the reasons against stopping these brokers together now, one sentence each; empty if they may stop."""
    known = {broker.broker_id: broker for broker in view.brokers}
    if strange := sorted(brokers - known.keys()):
        return [f"there is no broker {strange[0]}: the cluster has {', '.join(map(str, known))}"]
    running = {broker_id for broker_id in brokers if known[broker_id].is_alive}
    if len(brokers) == 1 and not running:
        return [f"broker {min(brokers)} is already down"]
    return [*_partitions_lost(view, running), *_quorum_lost(view, running)]


def _partitions_lost(view: ClusterView, brokers: Set[int]) -> Iterator[str]:
    without: list[PartitionInfo] = []
    too_few: list[PartitionInfo] = []
    for partition in view.partitions:
        left = (partition.isr & _alive(view)) - brokers
        if partition.isr & brokers and len(left) < max(partition.min_isr, 1):
            (too_few if left else without).append(partition)
    if without:
        yield f"{_left(without)} without an in-sync replica: it could not be read or written{_named(without)}"
    if too_few:
        yield f"{_left(too_few)} below min.insync.replicas: writes with acks=all would be refused{_named(too_few)}"


def _quorum_lost(view: ClusterView, brokers: Set[int]) -> Iterator[str]:
    voters = view.quorum.voters
    left = len((_alive(view) & set(voters)) - brokers)
    majority = len(voters) // 2 + 1
    if not brokers.isdisjoint(voters) and left < majority:
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
