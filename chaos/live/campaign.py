"""One chaos run: clients load a cluster, faults are injected and undone, and the served partitions are checked."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.faults.fault import AT_ONCE_MAX, ActiveFaults, Fault
from cordwood.chaos.live.figures import Figures, ValueLimit
from cordwood.chaos.live.file_systems import CannotMount
from cordwood.chaos.live.load_clients import LiveClients, LoadOnCluster
from cordwood.chaos.live.network import NetworkUnavailable
from cordwood.chaos.live.plan import Step, TargetRole, steps
from cordwood.chaos.live.process import BrokerEnded, StillRuns
from cordwood.chaos.live.share_groups import begin_at_start, share_group_of
from cordwood.chaos.live.target import FaultTarget
from cordwood.chaos.live.transactional_producers import orders_topic_of, transactional_id_of
from cordwood.chaos.report.summary import Span

SERVED_S = 30.0
STARTED_S = 90.0
"""The same at the start: some twenty programs start at once then, which take all processor time of a small machine."""
IN_SYNC_S = 60.0
PRODUCE_AFTER_S, IN_SYNC_AGAIN_S = "produce_after_the_fault_s", "in_sync_again_s"
COMMIT_AFTER_S = "commit_after_the_fault_s"
"""Time from the removal of a fault to the first commit by each steady transactional client."""

WENT_WRONG = (BrokerEnded, StillRuns, NotInTime, TimeoutError, KafkaException, CannotMount, NetworkUnavailable)
"""Errors of a cluster that fails, or that a fault cannot be injected into."""


@dataclass(slots=True)
class Struck:
    """A fault in progress."""

    fault: Fault
    victims: list[int]
    what: str
    since_s: float


class Campaign:
    """One run against one target. Its results are `anomalies`, `figures`, and `spans` in seconds from its start."""

    def __init__(
        self,
        target: FaultTarget,
        load: LoadOnCluster,
        place: Path,
        report: Callable[[str], None],
        limits: Sequence[ValueLimit] | None = None,
    ) -> None:
        self.target, self.clients = target, LiveClients(target.cluster.bootstrap, load, place / "clients")
        self.anomalies: list[Anomaly] = []
        self.figures = Figures()
        self.spans: list[Span] = []
        self.struck: list[Struck] = []
        self.began_s = time.monotonic()
        """The start of the clients, on the monotonic clock."""
        self.report, self._limits = report, limits
        self.rng = random.Random(load.seed)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began_s

    @property
    def limits(self) -> Sequence[ValueLimit]:
        """The limits of this run; by default those of the target's faults whose figures were measured."""
        if self._limits is not None:
            return self._limits
        limits = (limit for fault in self.target.faults.values() for limit in fault.rounds.limits)
        return [limit for limit in limits if limit.figure in self.figures.values]

    def run(self, minutes: float) -> None:
        """Run the clients for `minutes`, inject one fault after the other, and undo all of them."""
        self.run_through(lambda: self._inject(minutes * 60))

    def run_through(self, inject: Callable[[], None]) -> None:
        """Start the clients, inject faults, and undo all of them. The clients still run when this returns."""
        cluster, load = self.target.cluster, self.clients.load
        try:
            cluster.create_topic(load.topic, load.partitions, {"segment.bytes": str(load.segment_bytes)})
            if load.transactional:
                cluster.create_topic(orders_topic_of(load.topic), load.transactional)
            if load.share_members:
                begin_at_start(cluster.bootstrap, share_group_of(load.topic))
            self.began_s = time.monotonic()
            self.clients.start()
            self.served("at the start", self.began_s, STARTED_S)
            self.committed("at the start", self.began_s, STARTED_S)
            inject()
            self.undo()
        except WENT_WRONG as failure:
            self.accuse(unavailable(f"after {self.now_s:.0f} s", failure))
            self._end_spans()

    def _inject(self, seconds: float) -> None:
        # The clients of all groups need seconds to start on a machine of few cores: these do not count.
        until_s = self.now_s + seconds
        for step in steps(list(self.target.faults), random.Random(self.clients.load.seed)):
            if self.now_s + step.quiet_s >= until_s:
                break
            self._take(step, until_s)
        time.sleep(max(until_s - self.now_s, 0))

    def _take(self, step: Step, until_s: float) -> None:
        """Run one step of the plan. Undo the previous faults first, unless this step joins one."""
        # Two victims may leave no controller: then none can be found that is to be a victim.
        if not step.is_joined or self._state().is_alone or len(self.struck) >= AT_ONCE_MAX:
            self.undo()
        time.sleep(step.quiet_s)
        fault = self.target.faults[step.fault]
        if not fault.may_apply(self._state(), self.victims(fault, step.aim)):
            self.undo()
        self.strike(fault, self.victims(fault, step.aim))
        time.sleep(max(min(step.hold_s, until_s - self.now_s), 0))

    def victims(self, fault: Fault, aim: TargetRole) -> list[int]:
        """Return the victims: all brokers, where aim and fault allow it; else one broker that is not under a fault yet.

        That broker has the role `aim`; a random one if `aim` names no role or that broker is under a fault already.
        """
        cluster, load = self.target.cluster, self.clients.load
        aim = fault.aim or aim
        if aim is TargetRole.EVERYONE and fault.may_strike_all:
            return cluster.ids
        unharmed = [id_ for id_ in cluster.ids if id_ not in self._state().victims]
        in_role = -1
        if aim is TargetRole.LEADER:
            in_role = cluster.leader_of(load.topic, self.rng.randrange(load.partitions))
        elif aim is TargetRole.CONTROLLER:
            in_role = cluster.controller()
        elif aim is TargetRole.COORDINATOR and load.transactional:
            in_role = cluster.coordinator(transactional_id_of(load.topic, self.rng.randrange(load.transactional)))
        return [in_role if in_role in unharmed else self.rng.choice(unharmed)]

    def _state(self) -> ActiveFaults:
        return ActiveFaults(
            frozenset(each.fault.name for each in self.struck),
            frozenset(victim for each in self.struck for victim in each.victims),
            any(each.fault.is_alone or len(each.victims) > 1 for each in self.struck),
        )

    def strike(self, fault: Fault, victims: list[int]) -> None:
        """Inject a fault."""
        who = f"broker{'s' if len(victims) > 1 else ''} {', '.join(map(str, victims))}"
        # The fault is recorded before it is injected, so that the report shows one that fails half-way too.
        struck = Struck(fault, victims, who, self.now_s)
        self.struck.append(struck)
        struck.what = f"{who}: {fault.strike(victims, self.rng)}"
        self.report(f"{fault.name}: {struck.what}")

    def undo(self) -> None:
        """Undo all faults in progress. Check that every partition takes records, and wait for full in-sync sets."""
        if not self.struck:
            return
        over = ", ".join(each.fault.name for each in self.struck)
        undone, began_s = list(reversed(self.struck)), time.monotonic()
        for each in undone:
            each.fault.heal(each.victims)
        self._end_spans()
        healed_s = time.monotonic()
        for each in undone:
            each.fault.settle(each.victims, self.figures)
        if waited_s := self.served(f"after {over} was healed", healed_s):
            self.figures.add(PRODUCE_AFTER_S, healed_s - began_s + waited_s)
        if waited_s := self.committed(f"after {over} was healed", healed_s):
            self.figures.add(COMMIT_AFTER_S, waited_s)
        self.target.cluster.wait_in_sync(IN_SYNC_S)
        lasted_s = time.monotonic() - began_s
        self.figures.add(IN_SYNC_AGAIN_S, lasted_s)
        self.report(f"healed {over}, in sync after {lasted_s:.1f} s")

    def _end_spans(self) -> None:
        self.spans += (Span(each.fault.name, each.what, each.since_s, self.now_s) for each in self.struck)
        self.struck.clear()

    def served(self, when: str, since_s: float, within_s: float = SERVED_S) -> float | None:
        """Wait until each partition acknowledges a record sent after `since_s`. Return the seconds of the slowest."""
        partitions = set(range(self.clients.load.partitions))
        waited = self.clients.served_after(since_s, within_s)
        if missing := partitions - waited.keys():
            sentence = f"Partitions {sorted(missing)} accept no records for {within_s:.0f} s {when}."
            self.accuse(Anomaly("unavailable", sentence, (), 1))
            return None
        return max(waited.values())

    def committed(self, when: str, since_s: float, within_s: float = SERVED_S) -> float | None:
        """Wait until each steady transactional client commits a transaction that began after `since_s`.

        Return the seconds of the slowest; None where there is no such client.
        """
        steady = set(self.clients.load.steady)
        waited = self.clients.committed_after(since_s, within_s)
        if missing := steady - waited.keys():
            sentence = f"Transactional clients {sorted(missing)} commit nothing for {within_s:.0f} s {when}."
            self.accuse(Anomaly("unavailable", sentence, (), 1))
            return None
        return max(waited.values(), default=None)

    def accuse(self, anomaly: Anomaly) -> None:
        """Add an anomaly."""
        self.anomalies.append(anomaly)
        self.report(f"{anomaly.kind}: {anomaly.sentence}")


def unavailable(when: str, failure: Exception) -> Anomaly:
    """Return the anomaly of a failed cluster, with the last output as evidence."""
    what, *said = str(failure).splitlines()
    return Anomaly("unavailable", f"{when.capitalize()}: {what}", tuple({"said": line} for line in said), 1)
