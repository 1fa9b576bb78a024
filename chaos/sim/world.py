"""The whole of a simulated world: machines with brokers, clients, a network between them, and what was found wrong."""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.chaos.sim.crowd import Crowd
from cordwood.chaos.sim.faults import Died
from cordwood.chaos.sim.host import DATA, KAFKA_PORT, RAFT_PORT, Host, host_name
from cordwood.chaos.sim.invariants import Seen, look
from cordwood.chaos.sim.loop import PROCESS, NumberedTask, Process, SimulatedLoop
from cordwood.chaos.sim.network import Network
from cordwood.chaos.sim.plan import TOPIC, Plan
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, Image

RESTART_S = 0.5


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be, and was seen."""

    kind: str
    sentence: str
    at_s: float


class World:
    """Made on a SimulatedLoop. `begin` before anything else."""

    def __init__(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "a world lives in simulated time"
        self.loop, self.plan = loop, plan
        self.network = Network(loop, self._rng("network"), plan.latency_s)
        self.network.split_share = plan.split_share
        self.violations: list[Violation] = []
        self.story: list[str] = []
        self.seen = Seen()
        self.hosts = {broker_id: self._host(broker_id) for broker_id in plan.broker_ids}
        self.held: set[int] = set()
        """Hosts that stay down until somebody starts them."""
        self.crowd = Crowd(loop, plan, self.alarm, self._leaders_end)
        self._elected: dict[int, int] = {}
        """By partition: the newest leader epoch in the history."""
        self._looked_ns = 0
        self.on_exit: Callable[[Host], None] = _nothing
        """Told of a process that has ended by itself, before it is started again."""
        loop.set_exception_handler(self._unheard)

    @property
    def now_s(self) -> float:
        """Seconds since the world began."""
        return self.loop.passed_s

    async def begin(self) -> "World":
        """Start the brokers, have the topic created, and set the clients off."""
        for host in self.hosts.values():
            host.start()
        await self.crowd.prepare()
        self.crowd.begin()
        if self.plan.chores:
            self.crowd.administer(self)
        return self

    def alarm(self, kind: str, sentence: str) -> None:
        """Something must never be, and is. What is seen again and again is kept once."""
        if not any(known.kind == kind and known.sentence == sentence for known in self.violations):
            self.violations.append(Violation(kind, sentence, self.now_s))

    def later(self, seconds: float, step: Callable[[], object]) -> None:
        """Have something happen to the world, whoever's end has led to it."""
        self.loop.call_at(self.loop.passed_s + seconds, step, context=Context())

    def note(self, what: str) -> None:
        """Something that belongs to the story of the run."""
        self.story.append(f"{self.now_s:9.3f} {what}")
        if self.loop.trace is not None:
            self.loop.trace.happened(what)

    def watched(self) -> list[Watched]:
        """The brokers that run and know the cluster's metadata."""
        return [host.watched for host in self.hosts.values() if host.watched is not None]

    @property
    def image(self) -> Image:
        """The newest metadata that any of them has."""
        return max((broker.quorum.image for broker in self.watched()), key=lambda image: image.index, default=Image())

    def leader(self, partition: int) -> int:
        """Who leads, by the newest metadata; NO_LEADER for nobody."""
        topic = self.image.topics_by_name.get(TOPIC)
        return int(topic.partitions[partition].leader if topic is not None else NO_LEADER)

    def controller(self) -> int:
        """The active controller; NO_LEADER for nobody."""
        active = [broker for broker in self.watched() if broker.quorum.is_leader]
        return int(max(active, key=lambda broker: broker.quorum.term).broker_id if active else NO_LEADER)

    def committed_end(self, partition: int, topic: str = TOPIC) -> int:
        """How far the partition is committed, by the broker that has come furthest."""
        held = [broker.replicas.get(topic, partition) for broker in self.watched()]
        return max((replica.high_watermark for replica in held if replica is not None), default=0)

    def state(self) -> str:
        """Everything about every replica, for a sentence that says what is not as it should be."""
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

    def is_redundant(self) -> bool:
        """Whether everybody runs, and every replica is in sync: one disk may be lost, and then no other."""
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

    def look(self) -> None:
        """Hold every rule against what there is right now."""
        self._note_elections()
        disks = {broker_id: host.disk for broker_id, host in self.hosts.items()}
        for kind, sentence in look(self.watched(), disks, self.seen):
            self.alarm(kind, sentence)
        if self.loop.trace is not None:
            self.loop.trace.happened(f"metadata {self.seen.newest.index}")

    def _note_elections(self) -> None:
        """Put new leader epochs into the history: when we looked last, nobody knew of them."""
        image, now_ns = self.image, int(self.now_s * 1e9)
        topic = image.topics_by_name.get(TOPIC)
        for index, partition in enumerate(() if topic is None else topic.partitions):
            if partition.leader_epoch > self._elected.get(index, -1):
                self._elected[index] = partition.leader_epoch
                self.crowd.history.elected(index, partition.leader_epoch, self._looked_ns)
        self._looked_ns = now_ns

    def _leaders_end(self, partition: int) -> int:
        """The largest high watermark that any leader has had until now."""
        return self.seen.leaders_end(self.watched(), TOPIC, partition)

    def start(self, broker_id: int) -> None:
        """Have it running, if it is not."""
        self.held.discard(broker_id)
        if not self.hosts[broker_id].is_running:
            self.hosts[broker_id].start()

    def _host(self, broker_id: int) -> Host:
        plan = self.plan
        voters = tuple(f"{voter}@{host_name(voter)}:{RAFT_PORT}" for voter in range(1, plan.voters + 1))
        listener = f"PLAINTEXT://{host_name(broker_id)}:{KAFKA_PORT}"
        settings = plan.broker_settings(broker_id, voters, listener, DATA)
        host = Host(self.network, settings, self._rng(host_name(broker_id)), plan.disk_s, self._exited)
        host.on_kill = self._last_look
        host.clock_rate = plan.clock_rates[broker_id - 1]
        return host

    def _last_look(self, broker: Watched) -> None:
        """A broker ends in a moment: what its leaders have committed may be on its way to clients."""
        self.seen.note_leaders_ends([broker], TOPIC)

    def _exited(self, host: Host, why: str) -> None:
        """A process has ended by itself: whoever looks after it starts it again."""
        if "broken invariant" in why:
            self.alarm("broken-invariant", f"broker {host.broker_id}: {why}")
        self.note(f"{host.name} ends: {why}")
        self.on_exit(host)
        if host.broker_id not in self.held:
            self.later(RESTART_S, lambda: self._start_again(host))

    def _start_again(self, host: Host) -> None:
        if host.broker_id not in self.held and not host.is_running:
            host.start()

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody caught: it ends what it was part of, and if an invariant was broken, the broker."""
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError | Died):
            process = _process_of(context)
            where = "nobody" if process is None else process.host
            self.alarm("unheard-error", f"{where}: {error!r} ({context.get('message')})")

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.plan.seed}/{name}")


def _nothing(_host: Host) -> None:
    """Nobody wants to know."""


def _process_of(context: dict[str, Any]) -> Process | None:
    """Whose task or callback it was that failed, as asyncio tells it to an exception handler."""
    task, handle = context.get("future"), context.get("handle")
    if isinstance(task, NumberedTask):
        return task.process
    return None if handle is None else handle._context.get(PROCESS)
