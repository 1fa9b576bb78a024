"""What a line could be at best with a flush before each answer: the figure without any, and what the disk alone takes.

“cordwood, os” is the same code without the wait. A record that waits for the disk waits for one flush at the least, at
the pace that the disk has with nothing else to do. A rate loses nothing where flushes go on beside the rest, but the
disk's own pace holds it. So this is a bound, and one that is seldom reached: flushes take processors too.
"""

from dataclasses import replace

from cordwood.bench.limits import DISK_WRITE, FLUSH_P50, FLUSHES, Limits
from cordwood.bench.measured import Part, ratio
from cordwood.bench.rounds import Samples
from cordwood.bench.systems import UNFLUSHED


def at_best(part: Part, figure: str, limits: Limits) -> float | None:
    """So many times Kafka's figure. None where no answer waits for the disk, or what it takes was not measured."""
    pair, unflushed = part.ours_and_kafkas(figure), part.results.get(figure, {}).get(UNFLUSHED)
    if pair is None or unflushed is None or (best := _with_a_flush(unflushed, limits)) is None:
        return None
    ours, kafkas = pair
    # Two runs of the same code are not alike: what was reached can be done.
    return max(ratio(replace(ours, values=[best]), kafkas), ratio(ours, kafkas))


def _with_a_flush(unflushed: Samples, limits: Limits) -> float | None:
    """The figure, in its unit, of a system that waits for the disk and is otherwise like `unflushed`."""
    flush_ms, disk_write = limits.median(FLUSH_P50), limits.median(DISK_WRITE)
    if unflushed.unit == "ms":
        return None if flush_ms is None else unflushed.median + flush_ms
    if FLUSHES in unflushed.uses:
        return unflushed.median
    if DISK_WRITE in unflushed.uses and disk_write is not None:
        return min(unflushed.median, disk_write / unflushed.uses[DISK_WRITE])
    return None
