"""What was measured of one thing that grows: curves over it, and what was promised of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

FLAT = 1.2
"""What a curve may grow by, from its first point to its last, and still be called flat."""


@dataclass(slots=True)
class Curve:
    """One figure over what grows, from the smallest to the largest."""

    name: str
    unit: str
    points: list[tuple[float, float]] = field(default_factory=list)
    why: str = ""
    """Where it may not be flat: a sentence that says why."""

    def add(self, x: float, y: float) -> None:
        self.points.append((x, y))

    @property
    def growth(self) -> float:
        """The last value as so many times the first."""
        first, last = self.points[0][1], self.points[-1][1]
        return last / first if first > 0 else 1.0 if last <= 0 else float("inf")

    @property
    def is_flat(self) -> bool:
        return self.growth <= FLAT


@dataclass(frozen=True, slots=True)
class Promise:
    """A figure that must not be larger than its limit."""

    what: str
    value: float
    limit: float
    unit: str

    @property
    def is_kept(self) -> bool:
        return self.value <= self.limit


@dataclass(slots=True)
class Area:
    """All that was measured over one thing that grows."""

    name: str
    x_label: str
    curves: list[Curve] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def curve(self, name: str, unit: str, why: str = "") -> Curve:
        """The curve of that name, begun where there is none yet."""
        for curve in self.curves:
            if curve.name == name:
                return curve
        self.curves.append(Curve(name, unit, why=why))
        return self.curves[-1]

    def promise(self, what: str, value: float, limit: float, unit: str) -> None:
        self.promises.append(Promise(what, value, limit, unit))

    @property
    def units(self) -> Sequence[str]:
        """In the order in which they came: the curves of one share a chart."""
        return list(dict.fromkeys(curve.unit for curve in self.curves))

    @classmethod
    def loaded(cls, stored: dict[str, Any]) -> Self:
        """From what dataclasses.asdict made of one, by way of JSON."""
        curves = [Curve(**{**each, "points": [(x, y) for x, y in each["points"]]}) for each in stored["curves"]]
        promises = [Promise(**each) for each in stored["promises"]]
        return cls(stored["name"], stored["x_label"], curves, promises, stored["notes"])
