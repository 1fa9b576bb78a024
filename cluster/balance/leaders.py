"""Balance of leaders, by another order of the replicas, which moves no data."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence, Set
from itertools import pairwise

from cordwood.cluster.balance.layout import ReplicaLayout
from cordwood.cluster.balance.plan import EVEN_WITHIN

EVEN_TO = 0.05
"""The deviation of leaders and of the bytes that they send at which the search ends."""
EXCHANGES_MAX = 1000
LOOKED_AT = 32


class Leaders:
    """The preferred leaders of a layout. `may_lead` are the brokers among which they are evened out."""

    def __init__(self, layout: ReplicaLayout, may_lead: Set[int]) -> None:
        self._layout, self._brokers = layout, sorted(may_lead)
        self._count = dict.fromkeys(self._brokers, 0)
        self._bytes_out = dict.fromkeys(self._brokers, 0.0)
        self._edges: dict[tuple[int, int], dict[int, None]] = {}
        """Partitions that the first broker leads and the second one could lead."""
        for number, partition in enumerate(layout.partitions):
            leader = layout.replicas[number][0]
            if leader in self._count:
                self._count[leader] += 1
                self._bytes_out[leader] += partition.bytes_out
            if not partition.is_moving:
                self._link(number)

    def even_counts(self) -> Generator[None, None, None]:
        """Even out the number of leaders along chains of partitions: A gives one to B, and B another one to C."""
        mean = sum(self._count.values()) / max(len(self._brokers), 1)
        within = max(EVEN_TO * mean, 0.999)
        stuck: set[int] = set()
        while True:
            yield
            over = [each for each in self._brokers if each not in stuck and self._count[each] > mean]
            under = [each for each in self._brokers if self._count[each] < mean]
            if not over or not under:
                return
            source = max(over, key=self._count.__getitem__)
            least = min(under, key=self._count.__getitem__)
            if self._count[source] - mean <= within and mean - self._count[least] <= within:
                return
            chain = self._chain(source)
            if chain is None:
                stuck.add(source)
                continue
            for giver, taker in pairwise(chain):
                self._lead(next(iter(self._edges[giver, taker])), taker)

    def exchange_replicas(self) -> Generator[None, None, None]:
        """Even out leaders further than their present replicas allow: copy a replica each way between two brokers."""
        mean = sum(self._count.values()) / max(len(self._brokers), 1)
        for _ in range(EXCHANGES_MAX):
            yield
            by_count = sorted(self._brokers, key=self._count.__getitem__)
            if not by_count:
                return
            least, most = by_count[0], by_count[-1]
            furthest = max(self._count[most] - mean, mean - self._count[least])
            if furthest <= max(EVEN_WITHIN * mean, 0.999) or not self._exchange_one(by_count[::-1], least):
                return

    def _exchange_one(self, sources: Sequence[int], target: int) -> bool:
        """Move a leader to `target`, and a follower back, so that both keep their bytes. Return False if none fits.

        A source that is cordoned gets nothing back.
        """
        layout = self._layout
        if target not in layout.targets:
            return False
        for source in sources:
            if self._count[source] <= self._count[target] + 1:
                return False
            given = [number for number in self._movable(source, is_leader=True) if self._fits(number, source, target)]
            may_take = source in layout.targets
            followers = self._movable(target, is_leader=False) if may_take else ()
            taken = [number for number in followers if self._fits(number, target, source)]
            if not given or (not taken and may_take):
                continue
            size_of = self._size_of
            pairs = ((abs(size_of(one) - size_of(other)), one, other) for one in given[:LOOKED_AT] for other in taken)
            _, one, other = min(pairs, default=(0, given[0], None))
            self._move(one, source, target)
            if other is not None:
                self._move(other, target, source)
            return True
        return False

    def _movable(self, broker: int, *, is_leader: bool) -> Iterator[int]:
        """Yield partitions with a replica here, those that have other replicas than before first."""
        layout = self._layout
        found = [
            number
            for number, partition in enumerate(layout.partitions)
            if broker in layout.replicas[number]
            and not partition.is_moving
            and (layout.replicas[number][0] == broker) == is_leader
        ]
        return iter(sorted(found, key=lambda number: broker in layout.partitions[number].replicas))

    def _fits(self, number: int, source: int, target: int) -> bool:
        return self._layout.may_hold(number, target, source)

    def _size_of(self, number: int) -> int:
        return self._layout.partitions[number].size_bytes

    def _move(self, number: int, source: int, target: int) -> None:
        leader, *others = self._layout.replicas[number]
        for other in others:
            self._edges.get((leader, other), {}).pop(number, None)
        self._layout.move(number, source, target)
        if leader == source:
            traffic = self._layout.partitions[number].bytes_out
            self._count[source] -= 1
            self._count[target] += 1
            self._bytes_out[source] -= traffic
            self._bytes_out[target] += traffic
        self._link(number)

    def even_traffic(self) -> Generator[None, None, None]:
        """Even out the bytes that leaders send, by exchanges that leave their number as it is."""
        mean = sum(self._bytes_out.values()) / max(len(self._brokers), 1)
        for _ in range(EXCHANGES_MAX):
            yield
            source = max(self._brokers, key=self._bytes_out.__getitem__, default=None)
            if source is None or self._bytes_out[source] <= (1 + EVEN_TO) * mean or not self._exchange(source):
                return

    def _exchange(self, source: int) -> bool:
        for target in sorted(self._brokers, key=self._bytes_out.__getitem__):
            gap = self._bytes_out[source] - self._bytes_out[target]
            given = self._by_traffic(source, target)
            taken = self._by_traffic(target, source)
            best: tuple[float, int, int] | None = None
            at = 0
            for more, number in given:
                while at + 1 < len(taken) and more - taken[at + 1][0] >= gap / 2:
                    at += 1
                for less, other in taken[at : at + 2]:
                    if 0 < more - less < gap:
                        best = max(best or (0.0, 0, 0), (gap / 2 - abs(more - less - gap / 2), number, other))
            if best is not None and best[0] > 0:
                self._lead(best[1], target)
                self._lead(best[2], source)
                return True
        return False

    def _by_traffic(self, leader: int, other: int) -> list[tuple[float, int]]:
        partitions = self._layout.partitions
        return sorted((partitions[number].bytes_out, number) for number in self._edges.get((leader, other), ()))

    def _chain(self, source: int) -> list[int] | None:
        """Return the shortest chain of brokers from `source` to one with at least two leaders less, or None."""
        came_from: dict[int, int] = {source: source}
        waiting = deque([source])
        while waiting:
            at = waiting.popleft()
            for other in self._brokers:
                if other in came_from or not self._edges.get((at, other)):
                    continue
                came_from[other] = at
                if self._count[other] <= self._count[source] - 2:
                    chain = [other]
                    while chain[-1] != source:
                        chain.append(came_from[chain[-1]])
                    return chain[::-1]
                waiting.append(other)
        return None

    def _lead(self, number: int, broker: int) -> None:
        replicas, partition = self._layout.replicas[number], self._layout.partitions[number]
        leader = replicas[0]
        for other in replicas[1:]:
            self._edges.get((leader, other), {}).pop(number, None)
        place = replicas.index(broker)
        replicas[0], replicas[place] = broker, leader
        if leader in self._count:
            self._count[leader] -= 1
            self._bytes_out[leader] -= partition.bytes_out
        self._count[broker] += 1
        self._bytes_out[broker] += partition.bytes_out
        self._link(number)

    def _link(self, number: int) -> None:
        leader, *others = self._layout.replicas[number]
        for other in others:
            if other in self._count:
                self._edges.setdefault((leader, other), {})[number] = None
