"""Measured figures of a run, and the limits of some of them. Each name ends in its unit."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cordwood.chaos.checks.anomaly import Anomaly


@dataclass(frozen=True, slots=True)
class ValueLimit:
    """The largest allowed value of a figure at quantile `share`; with `is_least`, the smallest allowed value."""

    figure: str
    bound: float
    share: float = 1.0
    is_least: bool = False

    def value_of(self, values: Collection[float]) -> float:
        """Return the value that the bound applies to."""
        return min(values) if self.is_least else quantile(values, self.share)

    def is_kept(self, values: Collection[float]) -> bool:
        """Return whether the measured values keep the limit."""
        value = self.value_of(values)
        return value >= self.bound if self.is_least else value <= self.bound

    def sentence(self, values: Collection[float]) -> str:
        """Return the value and the bound in words."""
        place = "min" if self.is_least else "max" if self.share == 1 else f"p{self.share * 100:g}"
        return f"{place} {self.value_of(values):.3g} ({'at least' if self.is_least else 'at most'} {self.bound:g})"


@dataclass(slots=True)
class Figures:
    """The values of each figure, in the order in which they were measured."""

    values: dict[str, list[float]] = field(default_factory=dict)
    _recent: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figure: str, value: float) -> None:
        """Add one value."""
        self.values.setdefault(figure, []).append(value)
        self._recent.setdefault(figure, []).append(value)

    def recent(self) -> str:
        """Return the values since the last call in words."""
        words = [f"{figure} {', '.join(f'{value:.3g}' for value in values)}" for figure, values in self._recent.items()]
        self._recent.clear()
        return "; ".join(words)

    def exceeded(self, limits: Iterable[ValueLimit]) -> Iterator[Anomaly]:
        """Yield an anomaly for each limit that is not kept. A figure without a value keeps its limits."""
        for limit in limits:
            values = self.values.get(limit.figure)
            if values and not limit.is_kept(values):
                yield Anomaly("limit", f"{limit.figure}: {limit.sentence(values)}.", (), 1)

    def lines(self, limits: Sequence[ValueLimit]) -> Iterator[str]:
        """Yield a line for each figure: its limits beside their values, or median and maximum."""
        for figure in dict.fromkeys((*(limit.figure for limit in limits), *self.values)):
            values, own = self.values.get(figure), [limit for limit in limits if limit.figure == figure]
            if not values:
                yield f"{figure}: not measured"
            elif own:
                yield f"{figure}: {', '.join(limit.sentence(values) for limit in own)}"
            else:
                yield f"{figure}: p50 {quantile(values, 0.5):.3g}, max {max(values):.3g}"

    def summary(self) -> dict[str, dict[str, float]]:
        """Return median, p99, minimum and maximum of each figure."""
        return {
            figure: {
                "p50": round(quantile(values, 0.5), 3),
                "p99": round(quantile(values, 0.99), 3),
                "min": round(min(values), 3),
                "max": round(max(values), 3),
            }
            for figure, values in self.values.items()
        }


def quantile(values: Collection[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    assert values, "no values have no quantile"
    ordered: Sequence[float] = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
