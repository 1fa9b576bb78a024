"""Results of rounds of faults: anomalies in words, measured times, and a last line of JSON for other programs."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import typer

from cordwood.chaos.live.ack_log import BrokenPromise

ANOMALIES_SHOWN = 20


@dataclass(slots=True)
class RoundsReport:
    """Results, filled during the rounds and printed by `tell`."""

    name: str
    rounds: int = 0
    acknowledged: int = 0
    read: int = 0
    anomalies: list[BrokenPromise] = field(default_factory=list)
    times_s: dict[str, list[float]] = field(default_factory=dict)
    """Measured times, by what was measured."""
    figures: dict[str, float] = field(default_factory=dict)
    """Single numbers, by name with unit."""
    _this_round: dict[str, list[float]] = field(default_factory=dict)

    def took(self, what: str, seconds: float) -> None:
        """Add one measured time."""
        self.times_s.setdefault(what, []).append(seconds)
        self._this_round.setdefault(what, []).append(seconds)

    def end_round(self) -> str:
        """Count a round, and return its measured times in words."""
        told = [f"{what} {', '.join(f'{time:.2f} s' for time in times)}" for what, times in self._this_round.items()]
        self.rounds += 1
        self._this_round.clear()
        return "; ".join([*told, f"{len(self.anomalies)} anomalies"])

    def count(self, what: str) -> None:
        """Add one to a figure."""
        self.figures[what] = self.figures.get(what, 0) + 1

    def accuse(self, name: str, what: str) -> None:
        """Add an anomaly, with the number of the current round."""
        self.anomalies.append(BrokenPromise(name, f"round {self.rounds + 1}: {what}"))

    def limit(self, what: str, share: float, seconds: float) -> None:
        """Add an anomaly where quantile `share` of a measured time exceeds `seconds`."""
        times = self.times_s.get(what, [])
        if times and quantile(times, share) > seconds:
            measured = f"{quantile(times, share):.2f} s at p{share * 100:g}"
            self.anomalies.append(BrokenPromise("slow", f"{what}: {measured}, where {seconds:g} s are allowed"))

    def tell(self) -> None:
        """Print the results, and exit with 1 where a promise was broken."""
        for anomaly in self.anomalies[:ANOMALIES_SHOWN]:
            typer.echo(f"{anomaly.name}: {anomaly.what}")
        if len(self.anomalies) > ANOMALIES_SHOWN:
            typer.echo(f"and {len(self.anomalies) - ANOMALIES_SHOWN} more")
        typer.echo(json.dumps(self.summary()))
        if self.anomalies:
            raise typer.Exit(1)

    def summary(self) -> dict[str, object]:
        """Return the object of the last line. Times in seconds."""
        times = {what: summary_of(seconds) for what, seconds in self.times_s.items()}
        return {
            "name": self.name,
            "rounds": self.rounds,
            "acknowledged": self.acknowledged,
            "read": self.read,
            "anomalies": len(self.anomalies),
            "kinds": sorted({anomaly.name for anomaly in self.anomalies}),
            **{f"{what}_s": summary for what, summary in times.items()},
            **self.figures,
        }


def quantile(values: Collection[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    assert values, "no values have no quantile"
    ordered: Sequence[float] = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def summary_of(values: Collection[float]) -> dict[str, float]:
    """Return median, p99 and maximum."""
    return {
        "p50": round(quantile(values, 0.5), 3),
        "p99": round(quantile(values, 0.99), 3),
        "max": round(max(values), 3),
    }
