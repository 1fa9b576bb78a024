"""Measurements over one quantity that grows: curves, and promises about them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

FLAT = 1.2
"""The largest growth of a flat curve, from its first point to its last."""


@dataclass(slots=True)
class Curve:
    """One figure over the growing quantity, from the smallest to the largest."""

    name: str
    unit: str
    points: list[tuple[float, float]] = field(default_factory=list)
    why: str = ""
    """The reason why the curve may not be flat, as a sentence."""

    def add(self, x: float, y: float) -> None:
        self.points.append((x, y))

    @property
    def growth(self) -> float:
        """The last value as a multiple of the first."""
        first, last = self.points[0][1], self.points[-1][1]
        return last / first if first > 0 else 1.0 if last <= 0 else float("inf")

    @property
    def is_flat(self) -> bool:
        return self.growth <= FLAT


@dataclass(frozen=True, slots=True)
class FigureLimit:
    """A figure that must not exceed its limit."""

    what: str
    value: float
    limit: float
    unit: str

    @property
    def is_kept(self) -> bool:
        return self.value <= self.limit


@dataclass(slots=True)
class Area:
    """All measurements over one growing quantity."""

    name: str
    x_label: str
    curves: list[Curve] = field(default_factory=list)
    promises: list[FigureLimit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def curve(self, name: str, unit: str, why: str = "") -> Curve:
        """Return the curve of that name; begin it where there is none yet."""
        for curve in self.curves:
            if curve.name == name:
                return curve
        self.curves.append(Curve(name, unit, why=why))
        return self.curves[-1]

    def promise(self, what: str, value: float, limit: float, unit: str) -> None:
        self.promises.append(FigureLimit(what, value, limit, unit))

    @property
    def units(self) -> Sequence[str]:
        """The units in the order of the curves: curves of one unit share a chart."""
        return list(dict.fromkeys(curve.unit for curve in self.curves))

    @classmethod
    def loaded(cls, stored: dict[str, Any]) -> Self:
        """Return the area that `dataclasses.asdict` stored, after a round trip through JSON."""
        curves = [Curve(**{**each, "points": [(x, y) for x, y in each["points"]]}) for each in stored["curves"]]
        promises = [FigureLimit(**each) for each in stored["promises"]]
        return cls(stored["name"], stored["x_label"], curves, promises, stored["notes"])
