"""The contents of a report: verdict, faults, time series and the proof of each anomaly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.chaos.checks import Anomaly
from cordwood.chaos.report.series import Series


@dataclass(frozen=True, slots=True)
class Span:
    """A fault from its start to its end, in seconds from the start of the run."""

    fault: str
    what: str
    """The target and the form of the fault, in words."""
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report of one run. `facts` are the numbers of the verdict; `settings` are the parameters of the run."""

    seed: int
    commit: str
    sentence: str
    facts: Mapping[str, str]
    settings: Mapping[str, str]
    series: Series
    partitions: int
    faults: Sequence[Span] = field(default=())
    anomalies: Sequence[Anomaly] = field(default=())
    log: Sequence[str] = field(default=())
    """The event log of the run, line by line; empty where there is none."""
