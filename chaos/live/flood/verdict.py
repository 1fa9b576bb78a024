"""The verdict over a flood: the bystander's waits, and the brokers' memory, exits and tracebacks."""

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.chaos.live.bystander import Observed
from cordwood.chaos.live.flood.attack import SentShots
from cordwood.chaos.live.flood.shots import Shot
from cordwood.chaos.live.flood.waits import Stall, stalls
from cordwood.chaos.live.flood.watch import BrokerWatch

WAIT_S_MAX = 0.5
GROWTH_MB_MAX = 128.0
SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class FloodVerdict:
    """`complaints` is empty where the brokers kept their promises."""

    acknowledged: int
    worst: Stall | None
    """The stall that the brokers are most to blame for; None where all waits were short."""
    growth_mb: float
    """The largest growth of resident memory over the baseline before the flood."""
    kept_mb: float
    """The growth that remained after the flood."""
    lateness_s: float
    """An upper bound of the lateness of the event loops' timers, the machine's share included."""
    complaints: tuple[str, ...]

    @property
    def figures(self) -> str:
        """The figures in words."""
        waits = "all waits of the bystander were short" if self.worst is None else f"longest wait {self.worst}"
        return (
            f"{waits}; memory +{self.growth_mb:.0f} MB at its largest, +{self.kept_mb:.0f} MB in the end; "
            f"event loops at most {self.lateness_s:g} s late; "
            f"{self.acknowledged:,} records acknowledged"
        )


def judge(observed: Observed, watch: BrokerWatch, sent: SentShots, lateness_s: float = 0.0) -> FloodVerdict:
    """Judge exits, tracebacks, errors, waits and memory. Each complaint names the requests that may be the cause."""
    found = stalls(observed.waits, watch.machine)
    complaints = [*watch.exits(), *watch.tracebacks(), *sent.complaints]
    complaints += [f"the bystander saw: {error}" for error in observed.errors[:SHOWN_MAX]]
    long = [stall for stall in found if stall.blamed_s > WAIT_S_MAX]
    complaints += [
        f"the bystander waited {stall}, where {WAIT_S_MAX:g} s are allowed"
        + _during(sent.shots, stall.wait.began_s, stall.wait.ended_s)
        for stall in long[:SHOWN_MAX]
    ]
    if len(long) > SHOWN_MAX:
        complaints.append(f"and {len(long) - SHOWN_MAX} more such waits")
    if watch.growth_mb > GROWTH_MB_MAX:
        complaints.append(
            f"a broker grew by {watch.growth_mb:.0f} MB, of which it kept {watch.kept_mb:.0f} MB, "
            f"where {GROWTH_MB_MAX:.0f} MB are allowed" + _during(sent.shots, watch.peak_s, watch.peak_s)
        )
    worst = found[0] if found else None
    return FloodVerdict(observed.acknowledged, worst, watch.growth_mb, watch.kept_mb, lateness_s, tuple(complaints))


def _during(shots: Sequence[Shot], began_s: float, ended_s: float) -> str:
    """Return the shots in progress during a period, the latest first."""
    suspects = [shot for shot in shots if shot.began_s <= ended_s and shot.ended_s >= began_s]
    suspects.sort(key=lambda shot: shot.began_s, reverse=True)
    return "".join(f"\n  --shot {shot.name}: {shot.what}, {shot.outcome.value}" for shot in suspects[:SHOWN_MAX])
