"""A simulated cluster: hosts with brokers, clients, the network between them, and the invariant violations found."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from cordwood.chaos.history import UNKNOWN
from cordwood.chaos.sim.archive_checks import ArchiveChecks
from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.chaos.sim.cut_jobs import CutJobs
from cordwood.chaos.sim.faults import Died
from cordwood.chaos.sim.host import DATA, KAFKA_PORT, RAFT_PORT, SimulatedHost, host_name
from cordwood.chaos.sim.invariants import Seen, look
from cordwood.chaos.sim.kafka import Address
from cordwood.chaos.sim.load_clients import SimulatedClients
from cordwood.chaos.sim.loop import PROCESS, NumberedTask, Process, SimulatedLoop
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.chaos.sim.object_store import SimulatedObjects
from cordwood.chaos.sim.plan import MIN_ISR, TOPIC, Plan
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, Image

RESTART_S = 0.5
NO_IMAGE = Image()


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant violation that was observed."""

    kind: str
    sentence: str
    at_s: float


class World:
    """The simulated cluster of one plan, on a SimulatedLoop. Call `begin` before anything else."""

    def __init__(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "a world lives in simulated time"
        self.loop, self.plan = loop, plan
        self.network = SimulatedNetwork(loop, self._rng("network"), plan.latency_s)
        self.network.split_share = plan.split_share
        self.violations: list[Violation] = []
        self.events: list[str] = []
        self.seen = Seen()
        self.actions = Counter[str]()
        """Counts of what brokers did, by the names of `actions.ACTIONS`."""
        self.second_hosts: dict[int, SimulatedHost] = {}
        """Second processes with the id of a broker, on machines of their own."""
        self.objects: SimulatedObjects | None = None
        """The archive's objects; None without an archive."""
        self.archive_checks: ArchiveChecks | None = None
        if plan.has_archive:
            self.objects = SimulatedObjects(self._rng("object store"), lambda: loop.passed_s, plan.latency_s)
            self.archive_checks = ArchiveChecks(self.objects, lambda: self.image)
        self.hosts = {broker_id: self._host(broker_id) for broker_id in plan.broker_ids}
        self.held: set[int] = set()
        """Hosts that stay down until `start` is called for them."""
        self.clients = SimulatedClients(
            loop, plan, self.alarm, self._leaders_end, self._is_replaced, self.leading_epoch
        )
        self._elected: dict[int, int] = {}
        """By partition: the newest leader epoch in the history."""
        self._looked_ns = 0
        self.on_exit: Callable[[SimulatedHost], None] = _nothing
        """Called with a host whose process has ended by itself, before the process is restarted."""
        self.has_injuries: Callable[[], bool] = lambda: False
        """Returns whether a disk has lost data, or may return wrong data, that other replicas have to replace."""
        loop.set_exception_handler(self._unheard)

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start of the run."""
        return self.loop.passed_s

    async def begin(self) -> "World":
        """Start the brokers, create the topic, and start the clients."""
        for host in self.hosts.values():
            host.start()
        await self.clients.prepare()
        self.clients.begin()
        if self.plan.chores:
            self.clients.administer(self)
        return self

    def alarm(self, kind: str, sentence: str) -> None:
        """Record a violation. A violation that is observed repeatedly is recorded once."""
        if not any(known.kind == kind and known.sentence == sentence for known in self.violations):
            self.violations.append(Violation(kind, sentence, self.now_s))

    def later(self, seconds: float, step: Callable[[], object]) -> None:
        """Run `step` after a delay and outside any process, so that the caller's death does not cancel it."""
        self.loop.call_at(self.loop.passed_s + seconds, step, context=Context())

    def note(self, what: str) -> None:
        """Append a line to the event log of the run, and to the trace."""
        self.events.append(f"{self.now_s:9.3f} {what}")
        if self.loop.trace is not None:
            self.loop.trace.happened(what)

    def watched(self) -> list[Watched]:
        """The running brokers that have the cluster metadata."""
        return [watched for host in self.hosts.values() if (watched := host.watched) is not None]

    @property
    def image(self) -> Image:
        """The newest metadata image of any running broker."""
        return max((broker.quorum.image for broker in self.watched()), key=lambda image: image.index, default=NO_IMAGE)

    def leader(self, partition: int, name: str = TOPIC) -> int:
        """Return the leader of a partition by the newest metadata; NO_LEADER for none."""
        topic = self.image.topics_by_name.get(name)
        return int(topic.partitions[partition].leader if topic is not None else NO_LEADER)

    def controller(self) -> int:
        """Return the active controller; NO_LEADER for none."""
        active = [broker for broker in self.watched() if broker.quorum.is_leader]
        return int(max(active, key=lambda broker: broker.quorum.term).broker_id if active else NO_LEADER)

    def committed_end(self, partition: int, topic: str = TOPIC) -> int:
        """Return the largest high watermark of the partition on any running broker."""
        held = [broker.replicas.get(topic, partition) for broker in self.watched()]
        return max((replica.high_watermark for replica in held if replica is not None), default=0)

    def state(self) -> str:
        """Return the state of every replica, for error messages."""
        rows = []
        for topic in self.image.topics_by_id.values():
            for index, agreed in enumerate(topic.partitions):
                held = [(broker.broker_id, broker.replicas.with_id(topic.id, index)) for broker in self.watched()]
                ends = {
                    int(at): (replica.log.log_end, replica.log.flushed_end, replica.high_watermark)
                    for at, replica in held
                    if replica is not None
                }
                rows.append(f"{topic.name}/{index} led by {agreed.leader}, in sync {agreed.isr}, ends {ends}")
        return "; ".join(rows)

    def tolerates_lost_disk(self) -> bool:
        """Return whether docs/guarantees.md promises that no record is lost with a disk that is lost now.

        With a `min.insync.replicas` of 1, the in-sync set may shrink to the lost disk before its broker returns.
        """
        image = self.image
        return self.is_redundant() and all(
            image.min_isr(topic) >= MIN_ISR for topic in image.topics_by_id.values() if topic.name != LOSSY_TOPIC
        )

    def is_redundant(self) -> bool:
        """Return whether all brokers run, unfenced, with every replica in sync. LOSSY_TOPIC does not count."""
        image = self.image
        return (
            len(self.watched()) == len(self.hosts)
            and all(image.is_alive(BrokerId(broker_id)) for broker_id in self.hosts)
            and all(
                set(partition.isr) == set(partition.replicas)
                for topic in image.topics_by_id.values()
                if topic.name != LOSSY_TOPIC
                for partition in topic.partitions
            )
        )

    def has_spare_replicas(self) -> bool:
        """Return whether each partition of TOPIC has more replicas in sync than acks=all needs."""
        image = self.image
        topic = image.topics_by_name.get(TOPIC)
        return topic is not None and all(len(partition.isr) > image.min_isr(topic) for partition in topic.partitions)

    def look(self) -> None:
        """Check every invariant on the current state."""
        self._note_elections()
        hosts = self._counted_on()
        disks = {host.broker_id: host.disk for host in hosts}
        watched = [host.watched for host in hosts if host.watched is not None]
        for kind, sentence in look(watched, disks, self.seen):
            self.alarm(kind, sentence)
        if self.archive_checks is not None:
            for kind, sentence in self.archive_checks.look(self.image, watched):
                self.alarm(kind, sentence)
        if self.loop.trace is not None:
            self.loop.trace.happened(f"metadata {self.seen.newest.index}")

    def _note_elections(self) -> None:
        """Record new leader epochs in the history. They began after the previous call, when no broker knew of them."""
        image, now_ns = self.image, int(self.now_s * 1e9)
        topic = image.topics_by_name.get(TOPIC)
        for index, partition in enumerate(() if topic is None else topic.partitions):
            if partition.leader_epoch > self._elected.get(index, -1):
                self._elected[index] = partition.leader_epoch
                self.clients.history.elected(index, partition.leader_epoch, self._looked_ns)
        self._looked_ns = now_ns

    def _leaders_end(self, partition: int) -> int:
        """Return the largest high watermark that any leader of the partition has had."""
        second = [host.watched for host in self.second_hosts.values() if host.watched is not None]
        return self.seen.leaders_end([*self.watched(), *second], TOPIC, partition)

    def leading_epoch(self, address: Address, partition: int) -> int:
        """Return the leader epoch in which the broker at an address leads a partition; UNKNOWN if it does not."""
        for host in (*self.hosts.values(), *self.second_hosts.values()):
            if host.name == address[0] and host.watched is not None:
                replica = host.watched.replicas.get(TOPIC, partition)
                return UNKNOWN if replica is None or replica.leading is None else replica.leader_epoch
        return UNKNOWN

    def start(self, broker_id: int) -> None:
        """Start the broker of a host, unless its process runs."""
        self.held.discard(broker_id)
        if not self.hosts[broker_id].is_running:
            self.hosts[broker_id].start()

    def start_second(self, broker_id: int) -> None:
        """Start a second process with the id of a broker, on a machine of its own, with an empty disk."""
        self.end_second(broker_id)
        host = self._host(broker_id, f"{host_name(broker_id)}-second")
        self.second_hosts[broker_id] = host
        host.start()

    def end_second(self, broker_id: int) -> None:
        """Kill the second process with this id, if there is one."""
        if broker_id in self.second_hosts:
            self.second_hosts[broker_id].kill()

    def _counted_on(self) -> list[SimulatedHost]:
        """Return the hosts to check. Of two processes with one id it is the registered one.

        The other one does not know yet that it was replaced, and its replicas do not count.
        """
        if not self.second_hosts:
            return [*self.hosts.values()]
        brokers = self.image.brokers
        hosts = [host for broker_id, host in self.hosts.items() if broker_id not in self.second_hosts]
        for broker_id, second in self.second_hosts.items():
            known = brokers.get(BrokerId(broker_id))
            of_this_id = (self.hosts[broker_id], second)
            hosts += [host for host in of_this_id if known is not None and host.incarnation == known.incarnation]
        return hosts

    def _is_replaced(self, name: str) -> bool:
        """Return whether another process has registered the broker id of the process on this host."""
        return bool(self.second_hosts) and all(host.name != name for host in self._counted_on())

    def _host(self, broker_id: int, name: str = "") -> SimulatedHost:
        plan = self.plan
        name, on_exit = (name, self._second_exited) if name else (host_name(broker_id), self._exited)
        voters = tuple(f"{voter}@{host_name(voter)}:{RAFT_PORT}" for voter in range(1, plan.voters + 1))
        settings = plan.broker_settings(broker_id, voters, f"PLAINTEXT://{name}:{KAFKA_PORT}", DATA)
        cut_jobs = CutJobs(self.loop, self._rng(f"jobs of {name}"), plan.cut_share, self.actions)
        self.loop.at_end.append(cut_jobs.abandon)
        rng, objects = self._rng(name), self.objects
        host = SimulatedHost(self.network, settings, rng, plan.disks_s, cut_jobs, on_exit, name, objects)
        host.on_kill = self._last_look
        host.clock_rate = plan.clock_rates[broker_id - 1]
        return host

    def _last_look(self, broker: Watched) -> None:
        """Record the high watermarks of a broker before its process ends: clients may still receive them."""
        self.seen.note_leaders_ends([broker], TOPIC)

    def _second_exited(self, host: SimulatedHost, why: str) -> None:
        """Record that a second process has ended by itself. It is not restarted."""
        self._note_end(host, why)
        if "could not start" in why:
            self.actions["second-process-refused"] += 1

    def _note_end(self, host: SimulatedHost, why: str) -> None:
        if "broken invariant" in why:
            self.alarm("broken-invariant", f"broker {host.broker_id}: {why}")
        self.note(f"{host.name} ends: {why}")
        if "another broker has registered" in why:
            self.actions["replaced-process-ended"] += 1

    def _exited(self, host: SimulatedHost, why: str) -> None:
        """Record that a process has ended by itself, and schedule its restart."""
        self._note_end(host, why)
        self.on_exit(host)
        if host.broker_id not in self.held:
            self.later(RESTART_S, lambda: self._start_again(host))

    def _start_again(self, host: SimulatedHost) -> None:
        if host.broker_id not in self.held and not host.is_running:
            host.start()

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception that no code caught, unless it is an OSError or the simulated death of a process."""
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError | Died):
            process = _process_of(context)
            where = "no process" if process is None else process.host
            self.alarm("unheard-error", f"{where}: {error!r} ({context.get('message')})")

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.plan.seed}/{name}")


def _nothing(_host: SimulatedHost) -> None:
    """Ignore the exit."""


def _process_of(context: dict[str, Any]) -> Process | None:
    """Return the process of the task or callback that failed, from asyncio's exception context."""
    task, handle = context.get("future"), context.get("handle")
    if isinstance(task, NumberedTask):
        return task.process
    return None if handle is None else handle.context.get(PROCESS)
