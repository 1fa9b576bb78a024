"""Bound on a line with a flush before each answer, from the figure without a flush and the disk's own limits.

“cordwood, os” is the same code without the wait. A record that waits for the disk waits for at least one flush, in the
time that an idle disk takes. A rate loses nothing where flushes overlap with other work, but the disk's own rate limits
it. So this is a bound, and it is seldom reached: flushes take processor time too.
"""

from dataclasses import replace

from cordwood.bench.limits import DISK_WRITE, FLUSH_P50, FLUSHES, MachineLimits
from cordwood.bench.measured import MeasuredCluster, ratio
from cordwood.bench.rounds import Samples
from cordwood.bench.systems import UNFLUSHED


def at_best(part: MeasuredCluster, figure: str, limits: MachineLimits) -> float | None:
    """Return the bound as a multiple of Kafka's figure. None if no answer waits for the disk, or a limit is missing."""
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
