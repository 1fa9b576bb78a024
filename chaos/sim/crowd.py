"""The clients of a simulated world: each a program on a host of its own, with what it is like taken from the plan."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from cordwood.chaos.history import HistoryBuilder
from cordwood.chaos.sim.admin import prepare
from cordwood.chaos.sim.consuming import Reader
from cordwood.chaos.sim.grouping import Member
from cordwood.chaos.sim.host import KAFKA_PORT, host_name
from cordwood.chaos.sim.inquiring import Inquirer
from cordwood.chaos.sim.kafka import Client
from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.plan import MIN_ISR, REPLICATION_FACTOR, TOPIC, Plan
from cordwood.chaos.sim.producing import Alarm, Producer, ProducerPlan
from cordwood.chaos.workload import AppendWorkload

Work = Callable[[Client], Coroutine[Any, Any, None]]


class Crowd:
    """`prepare`, then `begin`. All that clients are told goes into one history."""

    def __init__(self, loop: SimulatedLoop, plan: Plan, alarm: Alarm, leaders_end: Callable[[int], int]) -> None:
        self._loop, self._plan, self._alarm = loop, plan, alarm
        self.history = HistoryBuilder(leaders_end)
        self.hosts: list[str] = []
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.members: list[Member] = []

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

    def _start(self, name: str, work: Work) -> "asyncio.Task[None]":
        self.hosts.append(name)
        rng = random.Random(f"{self._plan.seed}/{name}")
        bootstrap = [(host_name(broker_id), KAFKA_PORT) for broker_id in self._plan.broker_ids]

        async def live() -> None:
            await work(Client(name, TOPIC, bootstrap, rng))

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

    def _inquiring(self, number: int) -> Work:
        async def work(client: Client) -> None:
            await Inquirer(client, number, self._plan.partitions, self.history).run()

        return work

    def _taking_part(self, number: int) -> Work:
        async def work(client: Client) -> None:
            member = Member(client, number, self._plan.partitions, self.history, self._alarm)
            self.members.append(member)
            await member.run()

        return work
