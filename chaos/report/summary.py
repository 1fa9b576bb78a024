"""What a report tells: the verdict, the faults in their order, how the cluster fared, and the proof of each anomaly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.chaos.checks import Anomaly
from cordwood.chaos.report.series import Series


@dataclass(frozen=True, slots=True)
class Span:
    """A fault from its strike to its healing, in seconds from the start of the run."""

    fault: str
    what: str
    """Who was struck and how, in words."""
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run. `facts` are the numbers of the verdict, `settings` what it was told to do, by their names in words."""

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
    """What happened line by line, where that is known."""
