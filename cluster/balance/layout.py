"""The replicas of all partitions while a plan is made, and the load that they put on each broker."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence, Set
from itertools import chain

from cordwood.cluster.balance.load import ClusterLoad, PartitionLoad, racks_of

SIZE, RATE, COUNT, LED = range(4)
"""What is evened out: bytes on disk, bytes written per second, replicas, and preferred leaders among them."""
WEIGHTS = (4.0, 1.0, 0.25, 0.25)
NEIGHBOURS = 8
"""Replicas that are compared for one move."""
LEAST_GAIN = 1e-12


class ReplicaLayout:
    """The replicas of every partition. Loads are fractions of the mean among the targets."""

    def __init__(self, cluster: ClusterLoad, targets: Set[int], leaving: Set[int]) -> None:
        self.partitions = cluster.partitions
        self.replicas = [list(partition.replicas) for partition in cluster.partitions]
        self.targets, self._leaving = sorted(targets), leaving
        self.rack_of = racks_of(cluster.brokers)
        self.has_racks = len(set(self.rack_of.values())) < len(self.rack_of)
        self.target_racks = {self.rack_of[broker] for broker in self.targets}
        self.room = {broker.broker_id: broker.room_bytes for broker in cluster.brokers}
        self._scale = self._scales(targets | leaving)
        self._sizes = [partition.size_bytes * self._scale[SIZE] for partition in cluster.partitions]
        self._rates = [partition.bytes_in * self._scale[RATE] for partition in cluster.partitions]
        self._load = {broker: [0.0, 0.0, 0.0, 0.0] for broker in self._brokers_named(cluster)}
        self._held: dict[int, list[tuple[int, int]]] = {broker: [] for broker in self._load}
        for number, partition in enumerate(cluster.partitions):
            for broker in partition.replicas:
                self._add_load(number, broker, 1, is_leader=broker == partition.replicas[0])
                if not partition.is_moving:
                    self._held[broker].append((partition.size_bytes, number))
        for held in self._held.values():
            held.sort()

    def loads(self, what: int) -> dict[int, float]:
        """Return the load of each target; 1 is the mean."""
        return {broker: self._load[broker][what] for broker in self.targets}

    def may_hold(self, number: int, broker: int, instead_of: int) -> bool:
        """Return whether a broker may take a replica from another one: a new one, in another rack, with room."""
        replicas, partition = self.replicas[number], self.partitions[number]
        if broker in replicas or not self._has_room(broker, partition):
            return False
        if not self.has_racks:
            return True
        rack_of = self.rack_of
        racks = {rack_of.get(other, "") for other in replicas if other != instead_of}
        if rack_of[broker] not in racks:
            return True
        wanted = self.racks_wanted(number)
        return len(racks) >= (wanted if instead_of in self._leaving else max(wanted, self.racks_used(number)))

    def racks_wanted(self, number: int) -> int:
        """Return the number of racks that the partition's replicas should be in."""
        return min(len(self.replicas[number]), len(self.target_racks))

    def racks_used(self, number: int) -> int:
        """Return the number of racks that the partition's replicas are in."""
        return len({self.rack_of.get(broker, "") for broker in self.replicas[number]})

    def move(self, number: int, source: int, target: int) -> None:
        """Move a replica; the new one takes its place in the order of preference."""
        partition, replicas = self.partitions[number], self.replicas[number]
        is_leader = replicas[0] == source
        replicas[replicas.index(source)] = target
        self._add_load(number, source, -1, is_leader=is_leader)
        self._add_load(number, target, 1, is_leader=is_leader)
        entry = (partition.size_bytes, number)
        del self._held[source][bisect_left(self._held[source], entry)]
        insort(self._held[target], entry)
        # What leaves a disk is deleted only after it has arrived elsewhere, so it makes no room for this plan.
        self._use_room(target, partition, 1)
        self._use_room(source, partition, -1)

    def cost_of_adding(self, number: int, broker: int, *, is_leader: bool) -> float:
        """Return how much a replica of the partition worsens the balance if it is placed here."""
        more_here = (self._sizes[number], self._rates[number], self._scale[COUNT], is_leader * self._scale[LED])
        cost = 0.0
        for weight, now, more in zip(WEIGHTS, self._load[broker], more_here, strict=True):
            cost += weight * more * (more + 2 * (now - 1))
        return cost

    def best_shift(self, what: int, source: int, target: int) -> int | None:
        """Return the partition whose move from source to target improves the balance most, or None.

        The partitions that are compared have about the size that evens out both brokers together with the number of
        replicas.
        """
        held, (size_gap, rate_gap, count_gap, led_gap) = self._held[source], self._gaps(source, target)
        (size_weight, rate_weight, count_weight, led_weight), (_, _, more, led) = WEIGHTS, self._scale
        as_follower = count_weight * more * (more - count_gap)
        as_leader = as_follower + led_weight * led * (led - led_gap)
        best, least, compared = None, -LEAST_GAIN, 0
        for number in _around(held, self._size_wanted(what, source, target)):
            if not self.may_hold(number, target, source):
                continue
            size, rate = self._sizes[number], self._rates[number]
            cost = size_weight * size * (size - size_gap) + rate_weight * rate * (rate - rate_gap)
            cost += as_leader if self.replicas[number][0] == source else as_follower
            if cost < least:
                best, least = number, cost
            compared += 1
            if compared >= NEIGHBOURS:
                break
        return best

    def _gaps(self, source: int, target: int) -> list[float]:
        return [here - there for here, there in zip(self._load[source], self._load[target], strict=True)]

    def _size_wanted(self, what: int, source: int, target: int) -> float:
        """Return the size in bytes of the replica that fits best."""
        scale, at, to = self._scale, self._load[source], self._load[target]
        if not scale[SIZE]:
            return 0.0
        size_gap, _, count_gap, _ = self._gaps(source, target)
        excess = min(at[SIZE] - 1, 1 - to[SIZE]) if what == SIZE and at[SIZE] > 1 > to[SIZE] else size_gap / 2
        return max(excess, 0.0) / scale[SIZE] / max(1.0, count_gap / 2 / scale[COUNT])

    def _scales(self, sharing: Set[int]) -> tuple[float, float, float, float]:
        totals = [0.0, 0.0, 0.0, 0.0]
        for partition in self.partitions:
            held = sum(broker in sharing for broker in partition.replicas)
            totals[SIZE] += held * partition.size_bytes
            totals[RATE] += held * partition.bytes_in
            totals[COUNT] += held
            totals[LED] += partition.replicas[0] in sharing
        size, rate, count, led = (len(self.targets) / total if total else 0.0 for total in totals)
        return size, rate, count, led

    def _brokers_named(self, cluster: ClusterLoad) -> set[int]:
        named = chain.from_iterable(partition.replicas for partition in cluster.partitions)
        return {broker.broker_id for broker in cluster.brokers} | set(named)

    def _add_load(self, number: int, broker: int, sign: int, *, is_leader: bool) -> None:
        load = self._load[broker]
        load[SIZE] += sign * self._sizes[number]
        load[RATE] += sign * self._rates[number]
        load[COUNT] += sign * self._scale[COUNT]
        if is_leader:
            load[LED] += sign * self._scale[LED]

    def _has_room(self, broker: int, partition: PartitionLoad) -> bool:
        room = self.room.get(broker)
        return room is None or broker in partition.replicas or partition.size_bytes <= room

    def _use_room(self, broker: int, partition: PartitionLoad, sign: int) -> None:
        room = self.room.get(broker)
        if room is not None and broker not in partition.replicas:
            self.room[broker] = room - sign * partition.size_bytes


def _around(held: Sequence[tuple[float, int]], size: float) -> Iterator[int]:
    """Yield the partitions by their distance from a size: alternately larger and smaller ones."""
    up = bisect_left(held, (size, -1))
    down, end = up - 1, len(held)
    while up < end or down >= 0:
        if up < end:
            yield held[up][1]
            up += 1
        if down >= 0:
            yield held[down][1]
            down -= 1
