"""Goals of the benchmark: ratios to Kafka, shares of the disk's limits, and the bounds of a flush."""

from dataclasses import dataclass, replace

from cordwood.bench.limits import DISK_WRITE, FLUSH_P50, FLUSHES, MachineLimits
from cordwood.bench.measured import MeasuredCluster, ratio, ratios
from cordwood.bench.rounds import Samples
from cordwood.bench.systems import OURS, UNFLUSHED

LATENCY, LAST = "latency at 1,000/s", "16 connections, 1 in flight"
TRANSACTIONS = "transactions of 100 records"

RATIOS: dict[tuple[int, str], float] = {
    (1, "1 producer, 100 B"): 1.2,
    (1, "3 producers, 100 B"): 1.2,
    (1, "1 producer, 1 KB"): 1.3,
    (1, "1 consumer, 100 B"): 1.0,
    (1, "3 consumers, 100 B"): 1.0,
    (1, "1 consumer, 1 KB"): 1.0,
    (1, f"{LATENCY}, ack p50"): 1.0,
    (1, f"{LATENCY}, ack p99"): 2.0,
    (1, f"{LATENCY}, end to end p50"): 1.0,
    (1, f"{LATENCY}, end to end p99"): 2.0,
    (1, LAST): 0.9,
    (3, "1 producer, 100 B"): 2.2,
    (3, "3 producers, 100 B"): 2.0,
    (3, "1 producer, 1 KB"): 2.5,
    (3, "1 consumer, 100 B"): 1.0,
    (3, "3 consumers, 100 B"): 1.0,
    (3, "1 consumer, 1 KB"): 1.0,
    (3, f"{LATENCY}, ack p50"): 8.0,
    (3, f"{LATENCY}, ack p99"): 15.0,
    (3, f"{LATENCY}, end to end p50"): 8.0,
    (3, f"{LATENCY}, end to end p99"): 15.0,
    (3, LAST): 3.0,
    (3, TRANSACTIONS): 1.0,
}
"""By replicas and figure: the least ratio to Kafka without any fsync, with our group commit."""

# “Benchmarking Apache Kafka: 2 Million Writes Per Second (On Three Cheap Machines)”, Jay Kreps, LinkedIn, 2014: six
# machines of six cores and six disks each, three of them for the brokers, 100-byte records, six partitions.
LINKEDIN: dict[tuple[int, str], float] = {
    (1, "1 producer, 100 B"): 0.821557,
    (3, "1 producer, 100 B, acks=1"): 0.786980,
    (3, "1 producer, 100 B"): 0.421823,
    (3, "3 producers, 100 B, acks=1"): 2.024032,
    (3, "1 consumer, 100 B"): 0.940521,
    (3, "3 consumers, 100 B"): 2.615968,
    (3, "producer and consumer, 100 B, acks=1"): 0.795064,
    (3, "one at a time, end to end p50"): 2.0,
    (3, "one at a time, end to end p99"): 3.0,
}
"""In our units: M records/s, and ms. Context only: other machines, other disks, another Kafka."""

SHARES: dict[tuple[int, str], tuple[str, float]] = {(3, "1 producer, 1 KB"): (DISK_WRITE, 0.60)}
"""The least share of that limit."""

LIMITS_FROM = 0.5
"""The share from which on a limit counts as the bottleneck of a line."""


@dataclass(frozen=True, slots=True)
class GoalResult:
    """One goal and the median that was reached, with the spread of the rounds. All are ratios, or all are shares."""

    figure: str
    against: str
    reached: float
    asked: float
    spread: tuple[float, float]
    """The least and the most by the rounds; the same value twice after a single round, whose spread is unknown."""

    @property
    def is_level(self) -> bool:
        """Whether the goal is within the spread, so that another run may miss or reach it."""
        least, most = self.spread
        return least < self.asked < most

    @property
    def is_passed(self) -> bool:
        """Whether the goal is passed, by the measured and not the rounded value."""
        return not self.is_level and self.reached >= self.asked

    @property
    def is_short(self) -> bool:
        """Whether the goal is neither passed nor level."""
        return not self.is_level and not self.is_passed

    @property
    def word(self) -> str:
        """The result in a word, for a table."""
        return "level" if self.is_level else "passed" if self.is_passed else "falls short"


def against_kafka(part: MeasuredCluster, figure: str) -> GoalResult | None:
    """Return the result of a ratio to Kafka. None where the figure has no such goal, or Kafka was not measured."""
    asked, pair = RATIOS.get((part.replicas, figure)), part.ours_and_kafkas(figure)
    return None if asked is None or pair is None else GoalResult(figure, "Kafka", ratio(*pair), asked, ratios(*pair))


def winner(ours: Samples, theirs: Samples) -> str:
    """Return "ours", "theirs", or "level" where the ranges of the rounds overlap."""
    least, most = ratios(ours, theirs)
    return "ours" if least > 1 else "theirs" if most < 1 else "level"


def shares(samples: Samples, limits: MachineLimits) -> dict[str, float]:
    """Return the share of each limit that was reached. For a time: the part of it that one flush of the disk takes."""
    found: dict[str, float] = {}
    for name, each in samples.uses.items():
        if limit := limits.median(name):
            used = samples.median * each
            found[name] = used / limit if samples.more_is_better else limit * each / samples.median
    return found


def against_limit(part: MeasuredCluster, figure: str, limits: MachineLimits) -> GoalResult | None:
    """Return the result of a share of a limit. None where the figure has no such goal."""
    asked, ours = SHARES.get((part.replicas, figure)), part.results.get(figure, {}).get(OURS)
    if asked is None or ours is None or asked[0] not in (reached := shares(ours, limits)):
        return None
    limit, share = asked
    each = [shares(replace(ours, values=[value]), limits)[limit] for value in ours.values]
    return GoalResult(figure, limit, reached[limit], share, (min(each), max(each)))


def verdicts(part: MeasuredCluster, limits: MachineLimits) -> list[GoalResult]:
    """Return the results of all goals of a part, in the order of its figures."""
    asked = [
        verdict
        for figure in part.results
        for verdict in (
            against_kafka(part, figure),
            against_limit(part, figure, limits),
        )
    ]
    return [verdict for verdict in asked if verdict is not None]


def held_back(part: MeasuredCluster, limits: MachineLimits, *names: str) -> list[str]:
    """Return our figures that reach at least LIMITS_FROM of one of these limits."""
    return [
        figure
        for figure, samples in part.results.items()
        if OURS in samples and any(shares(samples[OURS], limits).get(name, 0) >= LIMITS_FROM for name in names)
    ]


def at_best(part: MeasuredCluster, figure: str, limits: MachineLimits) -> float | None:
    """Return the bound as a multiple of Kafka's figure. None if no answer waits for the disk, or a limit is missing.

    The bound is the figure without a flush (“cordwood, os”) and one flush of an idle disk; for a rate, at most the
    disk's own rate. It is seldom reached: flushes take processor time too.
    """
    pair, unflushed = part.ours_and_kafkas(figure), part.results.get(figure, {}).get(UNFLUSHED)
    if pair is None or unflushed is None or (best := _with_a_flush(unflushed, limits)) is None:
        return None
    ours, kafkas = pair
    # Two runs of the same code differ: a reached figure is possible.
    return max(ratio(replace(ours, values=[best]), kafkas), ratio(ours, kafkas))


def _with_a_flush(unflushed: Samples, limits: MachineLimits) -> float | None:
    """Return the figure, in its unit, of a system that flushes before each answer and is otherwise like `unflushed`."""
    flush_ms, disk_write = limits.median(FLUSH_P50), limits.median(DISK_WRITE)
    if unflushed.unit == "ms":
        return None if flush_ms is None else unflushed.median + flush_ms
    if FLUSHES in unflushed.uses:
        return unflushed.median
    if DISK_WRITE in unflushed.uses and disk_write is not None:
        return min(unflushed.median, disk_write / unflushed.uses[DISK_WRITE])
    return None
