"""One simulated run: faults, recovery of the whole cluster, and the check of invariants and history."""

import asyncio
import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cordwood.chaos.checks import Anomaly, check
from cordwood.chaos.history import History, Outcome
from cordwood.chaos.report.summary import Span
from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim import lying_disks
from cordwood.chaos.sim.fault_injector import FaultInjector
from cordwood.chaos.sim.liveness import Unhealed, come_together
from cordwood.chaos.sim.plan import Plan, plan_of
from cordwood.chaos.sim.schedule import ScheduledFault
from cordwood.chaos.sim.trace import Trace
from cordwood.chaos.sim.undisturbed import undisturbed
from cordwood.chaos.sim.world import World

LOOK_S = 0.05
COLLECT_S = 60.0
"""Interval of garbage collections. A fixed interval makes finalizers run at the same simulated time in each run."""
VIOLATIONS_MAX = 20
"""The number of violations after which the periodic check of invariants stops."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The result of a plan."""

    plan: Plan
    trace_hash: str
    findings: tuple[Anomaly, ...]
    """Anomalies of the checkers and violations of the rules of docs/rules.md."""
    history: History
    faults: tuple[Span, ...]
    """The faults that struck."""
    actions: Counter[str]
    """The number of times of each action of `actions.ACTIONS`: of clients, the administrator, and broker threads."""
    simulated_s: float
    events: tuple[str, ...]
    """The event log: one line per event, with the simulated time first."""

    @property
    def is_sound(self) -> bool:
        return not self.findings

    @property
    def acknowledged(self) -> int:
        return int((self.history.sends.outcome == Outcome.OK).sum())

    @property
    def read(self) -> int:
        return len(self.history.polls)


def run_seed(seed: int, seconds: float) -> SimulatedRun:
    """Run the plan of a seed, with faults for `seconds`."""
    plan = plan_of(seed, seconds)
    return run_plan(plan, plan.faults)


def run_plan(plan: Plan, faults: Sequence[ScheduledFault]) -> SimulatedRun:
    """Run a plan with these faults instead of its own. Equal arguments give byte-identical runs."""
    trace = Trace()
    with undisturbed():
        world = simulated.run(_live(plan, faults), trace)
        run = _observed(world, trace)
    return _with_lying_disks(run) if plan.has_lying_disks else run


def _with_lying_disks(run: SimulatedRun) -> SimulatedRun:
    unnoticed = lying_disks.unnoticed(run.plan.seed)
    findings = run.findings if unnoticed is None else (*run.findings, unnoticed)
    return replace(run, findings=findings, faults=(*run.faults, lying_disks.span()))


async def _live(plan: Plan, faults: Sequence[ScheduledFault]) -> "_Lived":
    world = World(plan)
    fault_injector = FaultInjector(world)
    watching = world.loop.create_task(_watch(world), name="watch")
    try:
        await world.begin()
        await fault_injector.run(faults)
        await asyncio.sleep(max(0.0, plan.seconds - world.now_s))
        fault_injector.heal()
        world.note("everything is healed")
        await come_together(world)
    except TimeoutError:
        world.alarm("rule-11", "the cluster did not come to have a topic")
    except Unhealed as unhealed:
        world.alarm("rule-11", str(unhealed))
    if watching.done():
        watching.result()
    watching.cancel()
    world.look()
    return _Lived(world, fault_injector)


async def _watch(world: World) -> None:
    """Check the invariants periodically, and collect garbage at fixed times."""
    collect_at_s = COLLECT_S
    while len(world.violations) < VIOLATIONS_MAX:
        await asyncio.sleep(LOOK_S)
        world.look()
        if world.now_s > collect_at_s:
            collect_at_s += COLLECT_S
            gc.collect()


@dataclass(frozen=True, slots=True)
class _Lived:
    world: World
    fault_injector: FaultInjector


def _observed(lived: _Lived, trace: Trace) -> SimulatedRun:
    world, history = lived.world, lived.world.clients.history.build()
    seen = (Anomaly(seen.kind, f"{seen.sentence} (at {seen.at_s:.3f} s)", (), 1) for seen in world.violations)
    return SimulatedRun(
        plan=world.plan,
        trace_hash=trace.hexdigest(),
        findings=(*seen, *check(history)),
        history=history,
        faults=tuple(lived.fault_injector.spans),
        actions=world.clients.actions + world.actions,
        simulated_s=round(world.now_s, 3),
        events=tuple(world.events),
    )
