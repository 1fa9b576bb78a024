"""The planner of a balance: hard goals first, then few moves that even out bytes, replicas, leaders and traffic.

Hard goals: a partition has a broker once, its replicas are in as many racks as possible, and a disk has room for its
new replicas. A move never breaks one of them. The search is greedy: each step moves one replica between the broker that
is furthest from the mean and one that gains by it. Every step lowers a sum of squares, so the search ends.
"""

from collections.abc import Iterable, Set
from dataclasses import replace

from cordwood.cluster.balance.layout import COUNT, RATE, SIZE, ReplicaLayout
from cordwood.cluster.balance.leaders import Leaders
from cordwood.cluster.balance.load import BrokerLoad, ClusterLoad
from cordwood.cluster.balance.plan import EVEN_WITHIN, BalancePlan, ReplicaMove, evenness, shares_of
from cordwood.storage.steps import Steps

EVEN_TO = 0.05
"""The deviation at which a search that has begun ends: a little growth afterwards needs no other move."""
PASSES_MAX = 4
NAMES_SHOWN = 3


def balance(cluster: ClusterLoad) -> Steps[BalancePlan]:
    """Plan, in steps, the moves that make the cluster even. Brokers that are down or cordoned get nothing."""
    return _plan(cluster, frozenset(), is_whole=True)


def drain(cluster: ClusterLoad, leaving: Iterable[int]) -> Steps[BalancePlan]:
    """Plan, in steps, the moves after which these brokers have no replica."""
    return _plan(cluster, frozenset(leaving), is_whole=False)


def _plan(cluster: ClusterLoad, leaving: Set[int], *, is_whole: bool) -> Steps[BalancePlan]:
    targets = {broker.broker_id for broker in cluster.brokers if _is_target(broker, leaving)}
    may_lead = {each.broker_id for each in cluster.brokers if each.is_alive and each.broker_id not in leaving}
    layout = ReplicaLayout(cluster, targets, leaving)
    stuck = yield from _repair(layout, leaving)
    if is_whole:
        yield from _even_out(layout)
    leaders = Leaders(layout, may_lead)
    yield from leaders.even_counts()
    if is_whole:
        yield from leaders.exchange_replicas()
    yield from leaders.even_traffic()
    problems = [*_problems(cluster, leaving), *_stuck_in_words(cluster, stuck)]
    return _result(cluster, layout, targets, problems)


def _is_target(broker: BrokerLoad, leaving: Set[int]) -> bool:
    return broker.is_alive and not broker.is_cordoned and broker.broker_id not in leaving


def _repair(layout: ReplicaLayout, leaving: Set[int]) -> Steps[list[int]]:
    """Move replicas that must not stay where they are, the largest first. Return partitions that cannot be placed."""
    stuck = []
    for number in _by_size(layout):
        yield
        replicas, has_place = layout.replicas[number], True
        for source in [broker for broker in replicas if broker in leaving]:
            has_place &= _replace(layout, number, source)
        while has_place and layout.racks_used(number) < layout.racks_wanted(number):
            has_place = any(_replace(layout, number, source) for source in _doubled(layout, number))
        if not has_place:
            stuck.append(number)
    return stuck


def _by_size(layout: ReplicaLayout) -> list[int]:
    partitions = layout.partitions
    movable = (number for number, partition in enumerate(partitions) if not partition.is_moving)
    return sorted(movable, key=lambda number: -partitions[number].size_bytes)


def _replace(layout: ReplicaLayout, number: int, source: int) -> bool:
    """Move a replica to the broker that gains most by it. Return False if no broker may take it."""
    able = [broker for broker in layout.targets if layout.may_hold(number, broker, source)]
    if not able:
        return False
    is_leader = layout.replicas[number][0] == source
    layout.move(
        number, source, min(able, key=lambda broker: layout.cost_of_adding(number, broker, is_leader=is_leader))
    )
    return True


def _doubled(layout: ReplicaLayout, number: int) -> list[int]:
    """Return the replicas that share their rack with another one, the last in the order of preference first."""
    racks = [layout.rack_of.get(broker, "") for broker in layout.replicas[number]]
    doubled = [broker for broker, rack in zip(layout.replicas[number], racks, strict=True) if racks.count(rack) > 1]
    return doubled[::-1]


def _even_out(layout: ReplicaLayout) -> Steps[None]:
    for _ in range(PASSES_MAX):
        active = [what for what in (SIZE, RATE, COUNT) if _deviation(layout, what) > EVEN_WITHIN]
        stuck: set[tuple[int, int]] = set()
        without_gain: set[tuple[int, int, int]] = set()
        has_moved = False
        while (worst := _worst(layout, active, stuck)) is not None:
            yield
            if _shift(layout, *worst, without_gain):
                has_moved = True
            else:
                stuck.add(worst)
        if not has_moved:
            return


def _deviation(layout: ReplicaLayout, what: int) -> float:
    return max((abs(load - 1) for load in layout.loads(what).values() if load), default=0.0)


def _worst(layout: ReplicaLayout, active: Iterable[int], stuck: Set[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the load and the broker that are furthest from the mean, or None if all are near it or stuck."""
    found, most = None, EVEN_TO
    for what in active:
        for broker, load in layout.loads(what).items():
            if abs(load - 1) > most and (what, broker) not in stuck:
                found, most = (what, broker), abs(load - 1)
    return found


def _shift(layout: ReplicaLayout, what: int, broker: int, without_gain: set[tuple[int, int, int]]) -> bool:
    """Move one replica from this broker, or to it, so that the balance improves. Return False if none does.

    Pairs of brokers in `without_gain` are passed over, and those found to belong there are added: to look at all
    replicas of a broker is slow.
    """
    loads = layout.loads(what)
    is_over = loads[broker] > 1
    for other in sorted(loads, key=loads.__getitem__, reverse=not is_over):
        if (loads[other] >= loads[broker]) if is_over else (loads[other] <= loads[broker]):
            return False
        source, target = (broker, other) if is_over else (other, broker)
        if (what, source, target) in without_gain:
            continue
        number = layout.best_shift(what, source, target)
        if number is not None:
            layout.move(number, source, target)
            return True
        without_gain.add((what, source, target))
    return False


def _result(cluster: ClusterLoad, layout: ReplicaLayout, targets: Set[int], problems: Iterable[str]) -> BalancePlan:
    moves, after, led_by_others = [], [], []
    for partition, replicas in zip(cluster.partitions, map(tuple, layout.replicas), strict=True):
        if replicas != partition.replicas:
            moves.append(
                ReplicaMove(partition.topic, partition.index, partition.replicas, replicas, partition.size_bytes)
            )
        if partition.leader not in (None, replicas[0]) and not partition.is_moving:
            led_by_others.append((partition.topic, partition.index))
        after.append(replace(partition, replicas=replicas))
    before, then = shares_of(cluster), shares_of(cluster, after)
    # Moves without data first: they relieve the leaders at once.
    moves.sort(key=lambda move: bool(move.adding))
    counted = frozenset(targets)
    return BalancePlan(
        tuple(moves),
        before,
        then,
        evenness(before, counted),
        evenness(then, counted),
        counted,
        tuple(problems),
        tuple(led_by_others),
    )


def _problems(cluster: ClusterLoad, leaving: Set[int]) -> Iterable[str]:
    moving = sum(partition.is_moving for partition in cluster.partitions)
    if moving:
        yield f"{_count(moving, 'partition')} stay as they are: their replicas are being moved already"
    for broker in cluster.brokers:
        if not broker.is_alive and broker.broker_id not in leaving:
            held = sum(broker.broker_id in partition.replicas for partition in cluster.partitions)
            if held:
                yield f"broker {broker.broker_id} is down: its {_count(held, 'replica')} stay there until it is drained"


def _stuck_in_words(cluster: ClusterLoad, stuck: list[int]) -> Iterable[str]:
    if stuck:
        names = ", ".join(cluster.partitions[number].name for number in stuck[:NAMES_SHOWN])
        more = ", …" if len(stuck) > NAMES_SHOWN else ""
        yield (
            f"{_count(len(stuck), 'partition')} cannot be placed as the rules demand ({names}{more}):"
            " too few brokers or racks, or no room on their disks"
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
