"""Where a value stands on a chart: scales in pixels, and the round numbers at which an axis has its lines."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

LINES_WANTED = 4
TICKS_WANTED = 10
ROUND_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800)


@dataclass(frozen=True, slots=True)
class Linear:
    """Values from 0 to `top` on so many pixels, the largest at 0."""

    top: float
    height_px: float

    def y(self, value: float) -> float:
        """Pixels from the upper edge."""
        return self.height_px * (1 - min(value, self.top) / self.top)

    def lines(self) -> Iterator[float]:
        """Round values to draw a line at."""
        power = 10 ** math.floor(math.log10(self.top / LINES_WANTED))
        step = max(next(power * lead for lead in (1, 2, 5, 10) if power * lead * LINES_WANTED >= self.top), 1)
        return (step * number for number in range(int(self.top / step) + 1))


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Values from 10^`low` to 10^`high` on so many pixels, the largest at 0: for latencies, which span decades."""

    low: int
    high: int
    height_px: float

    def y(self, value: float) -> float:
        """Pixels from the upper edge."""
        exponent = min(max(math.log10(value), self.low), self.high) if value > 0 else self.low
        return self.height_px * (1 - (exponent - self.low) / (self.high - self.low))

    def lines(self) -> Iterator[float]:
        """Every power of ten."""
        return (10.0**exponent for exponent in range(self.low, self.high + 1))


def linear_to(largest: float, height_px: float) -> Linear:
    """A scale that has room for the largest value."""
    return Linear(max(largest * 1.05, 1), height_px)


def logarithmic_to(smallest: float, largest: float, height_px: float) -> Logarithmic:
    """A scale of whole decades that has room for both."""
    low = math.floor(math.log10(max(smallest, 1e-3)))
    return Logarithmic(low, max(math.ceil(math.log10(max(largest, 1e-3))), low + 1), height_px)


def ticks(duration_s: int) -> range:
    """The seconds at which the axis of time has a mark."""
    step = next((seconds for seconds in ROUND_SECONDS if duration_s / seconds <= TICKS_WANTED), ROUND_SECONDS[-1])
    return range(0, duration_s + 1, step)


def clock(seconds: float) -> str:
    """12:34, or 1:02:03 from an hour on."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
