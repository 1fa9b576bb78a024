"""The clients of a simulated world: each a program on a host of its own, with what it is like taken from the plan."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from cordwood.chaos.history import HistoryBuilder
from cordwood.chaos.sim.actions import ACTIONS
from cordwood.chaos.sim.admin import prepare
from cordwood.chaos.sim.administrator import Administrator
from cordwood.chaos.sim.bystander import Bystander
from cordwood.chaos.sim.chores import LOSSY_TOPIC, SIDE_TOPIC
from cordwood.chaos.sim.consumer import Reader
from cordwood.chaos.sim.group_member import SimulatedMember
from cordwood.chaos.sim.host import KAFKA_PORT, host_name
from cordwood.chaos.sim.inquiring import Inquirer
from cordwood.chaos.sim.kafka import Client
from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.plan import MIN_ISR, REPLICATION_FACTOR, TOPIC, Plan
from cordwood.chaos.sim.producer import Alarm, Producer, ProducerPlan
from cordwood.chaos.sim.seeking import Seeker
from cordwood.chaos.workload import AppendWorkload

if TYPE_CHECKING:
    from cordwood.chaos.sim.world import World

PATIENCE_S = 0.5

Work = Callable[[Client], Coroutine[Any, Any, None]]


class Crowd:
    """`prepare`, then `begin`. All that clients are told goes into one history."""

    def __init__(self, loop: SimulatedLoop, plan: Plan, alarm: Alarm, leaders_end: Callable[[int], int]) -> None:
        self._loop, self._plan, self._alarm = loop, plan, alarm
        self.history = HistoryBuilder(leaders_end)
        self.hosts: list[str] = []
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.members: list[SimulatedMember] = []
        self.administrator: Administrator | None = None
        self.actions: Counter[str] = Counter()
        """How often clients did what is to be counted, by the names of docs/chaos.md."""

    async def prepare(self) -> None:
        """Have the topic created. Raises TimeoutError."""
        partitions = self._plan.partitions
        await self._start("admin", lambda client: prepare(client, partitions, REPLICATION_FACTOR, MIN_ISR))

    def begin(self) -> None:
        """Set all of them off. Producers end once they are told to and are answered, the others never."""
        plan = self._plan
        for number, producer in enumerate(plan.producers):
            self._start(f"producer-{number}", self._producing(number, producer))
        for number in range(plan.consumers):
            self._start(f"consumer-{number}", self._consuming(number))
        for number in range(plan.members):
            self._start(f"member-{number}", self._taking_part(plan.consumers + number))
        self._start("inquirer", self._inquiring(plan.consumers + plan.members))
        for number in range(plan.seekers):
            self._start(f"seeker-{number}", self._seeking(plan.consumers + plan.members + 1 + number))

    def administer(self, world: "World") -> None:
        """Have the administrator begin, and clients of the topics that come and go."""

        async def administering(client: Client) -> None:
            self.administrator = Administrator(world, client)
            await self.administrator.run(self._plan.chores)

        async def standing_by(client: Client) -> None:
            await Bystander(client, self._alarm).run()

        self._start("administrator", administering)
        for topic in (SIDE_TOPIC, LOSSY_TOPIC):
            self._start(f"{topic}-client", standing_by, topic)

    def put_right(self, world: "World") -> "asyncio.Task[None] | None":
        """Have the administrator rest, and what he has changed for a time put right."""
        if (administrator := self.administrator) is None:
            return None
        administrator.is_resting = True

        async def putting_right(client: Client) -> None:
            while administrator.under_way:
                await asyncio.sleep(PATIENCE_S)
            await Administrator(world, client).put_right()

        return self._start("caretaker", putting_right)

    def did(self, what: str) -> None:
        """Count it."""
        assert what in ACTIONS, f"{what} is to be counted, and not in the catalogue"
        self.actions[what] += 1

    def _start(self, name: str, work: Work, topic: str = TOPIC) -> "asyncio.Task[None]":
        self.hosts.append(name)
        rng = random.Random(f"{self._plan.seed}/{name}")
        bootstrap = [(host_name(broker_id), KAFKA_PORT) for broker_id in self._plan.broker_ids]

        async def live() -> None:
            await work(Client(name, topic, bootstrap, rng, self.did))

        return self._loop.create_task(live(), context=Process(name).context(), name=name)

    def _producing(self, number: int, plan: ProducerPlan) -> Work:
        partitions, rng = self._plan.partitions, random.Random(f"{self._plan.seed}/records of {number}")
        workload = AppendWorkload(number, partitions, rng, payload_bytes_max=plan.payload_bytes_max)

        async def work(client: Client) -> None:
            producer = Producer(client, plan, number, workload, self.history, partitions, self._alarm)
            self.producers.append(producer)
            await producer.run()

        return work

    def _consuming(self, number: int) -> Work:
        """Every second consumer reads from whoever has a replica (KIP-392)."""
        any_replica = number % 2 == 1

        async def work(client: Client) -> None:
            readers = [
                Reader(client, number, partition, self.history, self._alarm, any_replica=any_replica)
                for partition in range(self._plan.partitions)
            ]
            self.readers += readers
            await asyncio.gather(*(reader.run() for reader in readers))

        return work

    def _seeking(self, number: int) -> Work:
        async def work(client: Client) -> None:
            await Seeker(client, number, self._plan.partitions, self.history, self._alarm).run()

        return work

    def _inquiring(self, number: int) -> Work:
        async def work(client: Client) -> None:
            await Inquirer(client, number, self._plan.partitions, self.history).run()

        return work

    def _taking_part(self, number: int) -> Work:
        async def work(client: Client) -> None:
            member = SimulatedMember(client, number, self._plan.partitions, self.history, self._alarm)
            self.members.append(member)
            await member.run()

        return work
