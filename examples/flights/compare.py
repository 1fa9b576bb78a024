"""Comparison of the records read back with the records sent: missing, duplicate, changed, out of order."""

import json
import math
from dataclasses import dataclass, field

from examples.flights.source import Delays


@dataclass(slots=True)
class Sums:
    """One carrier's delays, collected record by record."""

    flights: int = 0
    departures: list[float] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)

    def delays(self) -> Delays:
        return Delays(self.flights, *_mean_and_max(self.departures), *_mean_and_max(self.arrivals))


@dataclass(slots=True)
class ReadBack:
    """The consumed records, with counts of all differences from the records sent."""

    sent: list[bytes]
    """The sent value of each row."""
    seen: bytearray = field(init=False)
    last_row_of_key: dict[bytes, int] = field(default_factory=dict)
    by_carrier: dict[str, Sums] = field(default_factory=dict)
    duplicates: int = 0
    out_of_order: int = 0
    changed: int = 0

    def __post_init__(self) -> None:
        self.seen = bytearray(len(self.sent))

    def take(self, key: bytes | None, value: bytes) -> None:
        """Add one record, in partition order."""
        flight = json.loads(value)
        row: int = flight["row"]
        self.changed += value != self.sent[row]
        self.duplicates += self.seen[row]
        self.seen[row] = 1
        if key is not None:
            self.out_of_order += row <= self.last_row_of_key.get(key, -1)
            self.last_row_of_key[key] = row
        sums = self.by_carrier.setdefault(flight["carrier"], Sums())
        sums.flights += 1
        if flight["dep_delay"] is not None:
            sums.departures.append(flight["dep_delay"])
        if flight["arr_delay"] is not None:
            sums.arrivals.append(flight["arr_delay"])

    @property
    def missing(self) -> int:
        """The number of rows that were not read back."""
        return self.seen.count(0)

    def delays(self) -> dict[str, Delays]:
        """Return the delays of the consumed records, as `source.delays_by_carrier` does for the table."""
        return {carrier: sums.delays() for carrier, sums in self.by_carrier.items()}


def same(left: Delays | None, right: Delays | None) -> bool:
    """Return whether delays are equal, up to the rounding of floating-point sums."""
    if left is None or right is None:
        return left is right
    return all(
        one is other or (one is not None and other is not None and math.isclose(one, other, rel_tol=1e-12))
        for one, other in zip(left, right, strict=True)
    )


def _mean_and_max(minutes: list[float]) -> tuple[float | None, float | None]:
    return (sum(minutes) / len(minutes), max(minutes)) if minutes else (None, None)
