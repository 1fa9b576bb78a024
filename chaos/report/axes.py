"""Chart axes: linear, logarithmic and time scales in pixels, with round numbers for grid lines."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

LINES_WANTED = 4
TICKS_WANTED = 10
ROUND_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800)


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear scale from 0 to `top`. The largest value maps to pixel 0."""

    top: float
    height_px: float

    def y(self, value: float) -> float:
        """Return the distance in pixels from the upper edge."""
        return self.height_px * (1 - min(value, self.top) / self.top)

    def lines(self) -> Iterator[float]:
        """Return round values for the grid lines."""
        power = 10 ** math.floor(math.log10(self.top / LINES_WANTED))
        step = max(next(power * lead for lead in (1, 2, 5, 10) if power * lead * LINES_WANTED >= self.top), 1)
        return (step * number for number in range(int(self.top / step) + 1))


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """A logarithmic scale from 10^`low` to 10^`high`, for latencies. The largest value maps to pixel 0."""

    low: int
    high: int
    height_px: float

    def y(self, value: float) -> float:
        """Return the distance in pixels from the upper edge."""
        exponent = min(max(math.log10(value), self.low), self.high) if value > 0 else self.low
        return self.height_px * (1 - (exponent - self.low) / (self.high - self.low))

    def lines(self) -> Iterator[float]:
        """Return every power of ten of the scale."""
        return (10.0**exponent for exponent in range(self.low, self.high + 1))


def linear_to(largest: float, height_px: float) -> Linear:
    """Return a scale with room for the largest value."""
    return Linear(max(largest * 1.05, 1), height_px)


def logarithmic_to(smallest: float, largest: float, height_px: float) -> Logarithmic:
    """Return a scale of whole decades with room for both values."""
    low = math.floor(math.log10(max(smallest, 1e-3)))
    return Logarithmic(low, max(math.ceil(math.log10(max(largest, 1e-3))), low + 1), height_px)


def ticks(duration_s: int) -> range:
    """Return the seconds at which the time axis has a mark."""
    step = next((seconds for seconds in ROUND_SECONDS if duration_s / seconds <= TICKS_WANTED), ROUND_SECONDS[-1])
    return range(0, duration_s + 1, step)


def clock(seconds: float) -> str:
    """Return a time as 12:34, or as 1:02:03 from one hour on."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
