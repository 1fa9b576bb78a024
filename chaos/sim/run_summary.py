"""Summaries of simulated runs: the verdict as a sentence and as JSON, and the report of one run."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b

from cordwood.chaos.checks import Anomaly, count_by_kind
from cordwood.chaos.commit import commit
from cordwood.chaos.history import UNKNOWN, Outcome, Sends
from cordwood.chaos.report.series import Answers, longest_silence_s, series
from cordwood.chaos.report.summary import RunReport
from cordwood.chaos.sim.actions import counted
from cordwood.chaos.sim.fault_injector import OFFLINE
from cordwood.chaos.sim.lying_disks import LYING_DISK
from cordwood.chaos.sim.plan import Plan
from cordwood.chaos.sim.run import SimulatedRun
from cordwood.chaos.sim.schedule import FaultKind
from cordwood.chaos.sim.store_faults import StoreFaultKind

NS_PER_S = 1e9
FAULTS = (*(kind.value for kind in FaultKind), OFFLINE, LYING_DISK, *(kind.value for kind in StoreFaultKind))
"""The names of all faults, each counted in the JSON object, 0 included."""


@dataclass(slots=True)
class RunTotals:
    """The totals over the runs of several seeds. `wall_s` is real time, which the caller measures."""

    found: list[tuple[int, Anomaly]] = field(default_factory=list)
    """The findings, each with its seed."""
    hashes: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    read: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0

    @property
    def seeds(self) -> int:
        return len(self.hashes)

    @property
    def speed(self) -> float:
        """Simulated seconds per real second."""
        return self.simulated_s / self.wall_s if self.wall_s else 0.0

    @property
    def trace_hash(self) -> str:
        """The hash of a single run, or one hash over those of all runs."""
        if len(self.hashes) == 1:
            return self.hashes[0]
        return blake2b("".join(self.hashes).encode(), digest_size=8).hexdigest()

    @property
    def kinds(self) -> dict[str, int]:
        return count_by_kind(anomaly for _, anomaly in self.found)

    @classmethod
    def of(cls, run: SimulatedRun) -> "RunTotals":
        """Return the totals of one run."""
        return cls(
            found=[(run.plan.seed, anomaly) for anomaly in run.findings],
            hashes=[run.trace_hash],
            faults=Counter(span.fault for span in run.faults),
            actions=Counter(run.actions),
            acknowledged=run.acknowledged,
            read=run.read,
            simulated_s=run.simulated_s,
        )

    def add(self, other: "RunTotals") -> None:
        self.found += other.found
        self.hashes += other.hashes
        self.faults.update(other.faults)
        self.actions.update(other.actions)
        self.acknowledged += other.acknowledged
        self.read += other.read
        self.simulated_s += other.simulated_s


def sentence(tally: RunTotals) -> str:
    """Return the verdict in one line."""
    found = ", ".join(f"{kind} {count}" for kind, count in tally.kinds.items()) or "no anomaly"
    return (
        f"{found}: {tally.faults.total()} faults in {_seeds(tally)} and {tally.simulated_s:.1f} simulated seconds, "
        f"{tally.speed:.0f} in a second; {tally.acknowledged:,} records acknowledged, {tally.read:,} read; "
        f"trace {tally.trace_hash}"
    )


def summary(tally: RunTotals, last_seed: int) -> dict[str, object]:
    """Return the verdict as a JSON object."""
    return {
        "seed": last_seed,
        "seeds": tally.seeds,
        "trace_hash": tally.trace_hash,
        "anomalies": [{"seed": seed, **asdict(anomaly)} for seed, anomaly in tally.found],
        "kinds": tally.kinds,
        "acknowledged": tally.acknowledged,
        "read": tally.read,
        "faults": {name: tally.faults[name] for name in FAULTS},
        "actions": counted(tally.actions),
        "simulated_seconds": round(tally.simulated_s, 3),
        "wall_seconds": round(tally.wall_s, 3),
        "simulated_seconds_per_wall_second": round(tally.speed, 1),
        "commit": commit(),
    }


def run_report(run: SimulatedRun, verdict: str, again: str) -> RunReport:
    """Return the report of a run. `verdict` is a sentence, and `again` the replay command."""
    plan, answers, lasted_s = run.plan, _answers(run.history.sends), _sending_s(run)
    return RunReport(
        seed=plan.seed,
        commit=commit(),
        sentence=verdict,
        facts={
            "acknowledged": f"{run.acknowledged:,}",
            "read": f"{run.read:,}",
            "faults": f"{len(run.faults)} of {len({span.fault for span in run.faults})} kinds",
            "longest time without an acknowledgement": f"{longest_silence_s(answers, lasted_s):.1f} s",
            "simulated seconds": f"{run.simulated_s:.1f}",
            "trace": run.trace_hash,
            "anomalies": str(len(run.findings)),
        },
        settings={"again": again, **_settings(plan)},
        series=series(answers, plan.partitions, lasted_s),
        partitions=plan.partitions,
        faults=run.faults,
        anomalies=run.findings,
        log=run.events,
    )


def described(plan: Plan) -> str:
    """Return the plan without its faults, as a line of JSON."""
    return json.dumps(asdict(replace(plan, faults=())), default=str)


def _settings(plan: Plan) -> dict[str, str]:
    shown = asdict(replace(plan, faults=()))
    return {name: str(value) for name, value in (shown | shown.pop("settings")).items() if name != "faults"}


def _answers(sends: Sends) -> Answers:
    return Answers(
        partition=sends.partition,
        sent_s=sends.invoked_ns / NS_PER_S,
        answered_s=sends.ended_ns / NS_PER_S,
        is_acknowledged=sends.outcome == Outcome.OK,
    )


def _sending_s(run: SimulatedRun) -> float:
    """Return the time until which producers were active. The time in which consumers catch up is not counted."""
    ended_ns = run.history.sends.ended_ns
    if (ended_ns == UNKNOWN).any():
        return run.simulated_s
    return max(run.plan.seconds, float(ended_ns.max(initial=0)) / NS_PER_S)


def _seeds(tally: RunTotals) -> str:
    return "one seed" if tally.seeds == 1 else f"{tally.seeds} seeds"
