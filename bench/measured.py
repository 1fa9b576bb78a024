"""All measurements of one run, and the JSON file that keeps them for programs and for the page."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cordwood.bench.limits import UNITS, MachineLimits
from cordwood.bench.rounds import Results, Samples
from cordwood.bench.systems import KAFKA, OURS


@dataclass(slots=True)
class MeasuredCluster:
    """The figures of one number of brokers, which is also the replication factor of every topic."""

    replicas: int
    results: Results

    @property
    def systems(self) -> list[str]:
        """The systems, ours first."""
        return list(dict.fromkeys(system for samples in self.results.values() for system in samples))

    @property
    def title(self) -> str:
        """The part's heading."""
        return "One broker" if self.replicas == 1 else f"{self.replicas} brokers, {self.replicas} replicas"

    def ours_and_kafkas(self, name: str) -> tuple[Samples, Samples] | None:
        """Return the two compared systems: ours with group commit, Kafka with defaults. None where one is missing."""
        samples = self.results.get(name, {})
        return (samples[OURS], samples[KAFKA]) if {OURS, KAFKA} <= samples.keys() else None


@dataclass(slots=True)
class MeasuredRun:
    """All parts and limits of one run. `about`: time, machine, disk, versions and rounds."""

    about: dict[str, Any]
    limits: MachineLimits = field(default_factory=MachineLimits)
    parts: list[MeasuredCluster] = field(default_factory=list)

    @property
    def has_kafka(self) -> bool:
        """Whether Kafka was measured too."""
        return any(KAFKA in part.systems for part in self.parts)

    def save(self, directory: Path) -> Path:
        """Write a file named by the time, and return its path."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        path.write_text(json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load a file that `save` wrote. Raises ValueError with a sentence where the file is something else."""
        try:
            return cls.of(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no result of `make bench` or `make bench-compare`: {error!r}.") from None

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """Parse the result of `document`. A recorded one has the commit that it was measured at."""
        limits = MachineLimits({name: limit["values"] for name, limit in document["limits"].items()})
        parts = [MeasuredCluster(part["replicas"], dict(map(_figure, part["figures"]))) for part in document["parts"]]
        return cls(document["about"], limits, parts)

    def document(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "about": self.about,
            "limits": {name: {"unit": UNITS[name], "values": values} for name, values in self.limits.values.items()},
            "parts": [{"replicas": part.replicas, "figures": list(_rows(part))} for part in self.parts],
        }


def ratio(ours: Samples, theirs: Samples) -> float:
    """Return how many times better our median is: above 1 we win, whether more or less is better."""
    more, less = (ours.median, theirs.median) if ours.more_is_better else (theirs.median, ours.median)
    return more / less if less else float("inf")


def ratios(ours: Samples, theirs: Samples) -> tuple[float, float]:
    """Return the least and the most that `ratio` may be: our worst round against their best, and the reverse."""
    worst, best = (min, max) if ours.more_is_better else (max, min)
    return (
        ratio(replace(ours, values=[worst(ours.values)]), replace(theirs, values=[best(theirs.values)])),
        ratio(replace(ours, values=[best(ours.values)]), replace(theirs, values=[worst(theirs.values)])),
    )


def _rows(part: MeasuredCluster) -> Iterator[dict[str, Any]]:
    for name, samples in part.results.items():
        first = next(iter(samples.values()))
        ours = samples.get(OURS)
        yield {
            "name": name,
            "unit": first.unit,
            "more_is_better": first.more_is_better,
            "uses": dict(first.uses),
            "values": {system: sample.values for system, sample in samples.items()},
            "ratio": {system: ratio(ours, sample) for system, sample in samples.items() if ours and system != OURS},
        }


def _figure(row: dict[str, Any]) -> tuple[str, dict[str, Samples]]:
    of = (row["unit"], row["more_is_better"])
    return row["name"], {system: Samples(*of, values, row["uses"]) for system, values in row["values"].items()}
