"""A plan of moves: what each costs, how even the cluster is before and after, and how long it takes."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cordwood.cluster.balance.load import ClusterLoad, PartitionLoad, Replicas

EVEN_WITHIN = 0.10
"""The largest deviation from the mean at which a cluster counts as even."""
S_PER_MOVE = 0.2
"""Time of a reassignment without data: two commands, and a connection of the new replica to its leader."""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """New replicas for one partition. Without `adding`, only the order changes: another replica becomes preferred."""

    topic: str
    index: int
    before: Replicas
    after: Replicas
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """Topic and index, such as `topic-0`."""
        return f"{self.topic}-{self.index}"

    @property
    def adding(self) -> Replicas:
        """The brokers that get a copy."""
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removing(self) -> Replicas:
        """The brokers whose copy is removed."""
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def copied_bytes(self) -> int:
        """The bytes that are copied from the leader."""
        return self.size_bytes * len(self.adding)


@dataclass(frozen=True, slots=True)
class Share:
    """What one broker holds."""

    broker_id: int
    size_bytes: int
    replicas: int
    leaders: int
    bytes_in: float
    bytes_out: float


@dataclass(frozen=True, slots=True)
class Evenness:
    """The largest deviation from the mean, as a fraction of the mean, among the brokers that count."""

    size_bytes: float
    replicas: float
    leaders: float
    bytes_in: float
    bytes_out: float


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """The moves of a plan, in the order in which they begin, and the resulting loads.

    `problems` are hard goals that cannot be met and partitions that stay where they are, one sentence each.
    """

    moves: tuple[ReplicaMove, ...]
    shares_before: tuple[Share, ...]
    shares_after: tuple[Share, ...]
    before: Evenness
    after: Evenness
    counted: frozenset[int]
    """The brokers among which the load is evened out."""
    problems: tuple[str, ...] = ()
    led_by_others: tuple[tuple[str, int], ...] = ()
    """Partitions that another than the preferred replica leads, unless it is elected after the moves."""

    @property
    def copied_bytes(self) -> int:
        """The bytes that all moves copy."""
        return sum(move.copied_bytes for move in self.moves)

    @property
    def copies(self) -> int:
        """The number of replicas that are copied."""
        return sum(len(move.adding) for move in self.moves)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.moves and not self.led_by_others

    @property
    def is_even(self) -> bool:
        """Whether the bytes are even after the moves, and the leaders too, or within one of each other."""
        leaders = [share.leaders for share in self.shares_after if share.broker_id in self.counted]
        is_even_in_leaders = self.after.leaders <= EVEN_WITHIN or max(leaders) - min(leaders) <= 1
        return self.after.size_bytes <= EVEN_WITHIN and is_even_in_leaders

    def expected_s(self, bytes_per_s: float, at_once: int = 1) -> float:
        """Return the expected seconds if no broker receives or sends more than `bytes_per_s` for the moves.

        `at_once` is the number of moves that run at the same time.
        """
        received: Counter[int] = Counter()
        sent: Counter[int] = Counter()
        for move in self.moves:
            for broker in move.adding:
                received[broker] += move.size_bytes
            sent[move.before[0]] += move.copied_bytes
        most = max((*received.values(), *sent.values()), default=0)
        return most / bytes_per_s + S_PER_MOVE * len(self.moves) / max(at_once, 1)

    def verdict(self) -> str:
        """Return the plan's effect in one sentence."""
        if self.is_empty:
            return "no move is planned" if self.problems else "nothing to do: bytes and leaders are even"
        limits = "" if self.is_even else "; racks, room or large partitions do not allow more"
        return (
            f"bytes within {_percent(self.after.size_bytes)} of even (now {_percent(self.before.size_bytes)}),"
            f" leaders within {_percent(self.after.leaders)} (now {_percent(self.before.leaders)}){limits}"
        )


def shares_of(cluster: ClusterLoad, partitions: Iterable[PartitionLoad] | None = None) -> tuple[Share, ...]:
    """Return each broker's share, by id. The preferred replica counts as leader."""
    size: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    bytes_in: dict[int, float] = {}
    bytes_out: dict[int, float] = {}
    for partition in cluster.partitions if partitions is None else partitions:
        leaders[partition.replicas[0]] += 1
        bytes_out[partition.replicas[0]] = bytes_out.get(partition.replicas[0], 0.0) + partition.bytes_out
        for broker in partition.replicas:
            size[broker] += partition.size_bytes
            replicas[broker] += 1
            bytes_in[broker] = bytes_in.get(broker, 0.0) + partition.bytes_in
    ids = sorted(broker.broker_id for broker in cluster.brokers)
    return tuple(
        Share(each, size[each], replicas[each], leaders[each], bytes_in.get(each, 0.0), bytes_out.get(each, 0.0))
        for each in ids
    )


def evenness(shares: Iterable[Share], counted: Collection[int]) -> Evenness:
    """Return the deviations among the brokers in `counted`."""
    chosen = [share for share in shares if share.broker_id in counted]
    return Evenness(
        _deviation([share.size_bytes for share in chosen]),
        _deviation([share.replicas for share in chosen]),
        _deviation([share.leaders for share in chosen]),
        _deviation([share.bytes_in for share in chosen]),
        _deviation([share.bytes_out for share in chosen]),
    )


def _deviation(loads: Collection[float]) -> float:
    mean = sum(loads) / len(loads) if loads else 0
    return max(abs(load - mean) for load in loads) / mean if mean else 0.0


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}%"
