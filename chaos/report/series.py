"""Time series of a run: throughput, latency quantiles and unavailable partitions per slice."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLICES_MAX = 900
SLICE_S_MIN = 1

Numbers = NDArray[np.int64]
Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answers:
    """The outcomes of sends, one row per record. Times are seconds from the start of the run."""

    partition: Numbers
    sent_s: Seconds
    answered_s: Seconds
    is_acknowledged: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Series:
    """One entry per slice of `slice_s` seconds. A latency is None where nothing was acknowledged."""

    slice_s: int
    acknowledged_per_s: list[float]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    partitions_unserved: list[int]
    """The number of partitions without an acknowledgement in the slice."""

    @property
    def duration_s(self) -> int:
        """The end of the last slice, in seconds."""
        return self.slice_s * len(self.acknowledged_per_s)


def series(answers: Answers, partitions: int, duration_s: float) -> Series:
    """Return the series of a run in whole slices, at most SLICES_MAX of them."""
    slice_s = max(math.ceil(duration_s / SLICES_MAX), SLICE_S_MIN)
    count = max(int(duration_s // slice_s), 1)
    known = answers.is_acknowledged & (answers.answered_s >= 0) & (answers.answered_s < count * slice_s)
    place = (answers.answered_s[known] // slice_s).astype(np.int64)
    partition = answers.partition[known]
    waited_ms = (answers.answered_s[known] - answers.sent_s[known]) * 1e3
    served = np.zeros((count, partitions), dtype=bool)
    served[place, partition] = True
    return Series(
        slice_s=slice_s,
        acknowledged_per_s=(np.bincount(place, minlength=count) / slice_s).tolist(),
        p50_ms=_quantiles(place, waited_ms, count, 0.50),
        p99_ms=_quantiles(place, waited_ms, count, 0.99),
        partitions_unserved=(partitions - served.sum(axis=1)).tolist(),
    )


def longest_silence_s(answers: Answers, duration_s: float) -> float:
    """Return the longest time without an acknowledgement in any one partition; 0 if nothing was ever acknowledged."""
    times, partitions = answers.answered_s[answers.is_acknowledged], answers.partition[answers.is_acknowledged]
    longest = 0.0
    for partition in np.unique(partitions):
        moments = np.sort(times[(partitions == partition) & (times < duration_s)])
        longest = max(longest, float(np.diff(moments, prepend=0.0, append=duration_s).max()))
    return longest


def _quantiles(place: Numbers, values: Seconds, count: int, share: float) -> list[float | None]:
    """Return, by slice, the smallest value that is not below this share of its values (nearest rank)."""
    order = np.lexsort((values, place))
    values = values[order]
    ends = np.searchsorted(place[order], np.arange(count), side="right")
    starts = np.concatenate(([0], ends[:-1]))
    at = starts + np.maximum(np.ceil(share * (ends - starts)).astype(np.int64) - 1, 0)
    return [
        round(float(values[which]), 3) if start < end else None
        for which, start, end in zip(at, starts, ends, strict=True)
    ]
