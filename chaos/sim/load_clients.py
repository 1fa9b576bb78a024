"""The simulated client programs: producers, consumers, group members and administrators, each on its own host."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.actions import ACTIONS
from cordwood.chaos.sim.admin import prepare
from cordwood.chaos.sim.administrator import Administrator
from cordwood.chaos.sim.bystander import SimulatedBystander
from cordwood.chaos.sim.chores import LOSSY_TOPIC, SIDE_TOPIC
from cordwood.chaos.sim.consumer import READ_COMMITTED, READ_UNCOMMITTED, Reader
from cordwood.chaos.sim.consumer_member import MemberPlan, SimulatedConsumerMember
from cordwood.chaos.sim.group_member import SimulatedMember
from cordwood.chaos.sim.group_plans import DELIVERY_LIMIT
from cordwood.chaos.sim.host import KAFKA_PORT, host_name
from cordwood.chaos.sim.kafka import SimulatedClient
from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.membership import SimulatedMembership
from cordwood.chaos.sim.offset_clients import OffsetClient
from cordwood.chaos.sim.plan import MIN_ISR, REPLICATION_FACTOR, TOPIC, Plan
from cordwood.chaos.sim.producer import Alarm, IsReplaced, ProducerPlan, SimulatedProducer
from cordwood.chaos.sim.schedule import FaultKind
from cordwood.chaos.sim.seeking_consumer import SeekingConsumer
from cordwood.chaos.sim.share_member import LeadingEpoch, SharePlan, SimulatedShareMember
from cordwood.chaos.sim.share_observer import ShareObserver
from cordwood.chaos.sim.transactional_client import TransactionalClient, TransactionalPlan
from cordwood.chaos.workload import AppendWorkload

if TYPE_CHECKING:
    from cordwood.chaos.sim.world import World

PATIENCE_S = 0.5

Work = Callable[[SimulatedClient], Coroutine[Any, Any, None]]


class SimulatedClients:
    """All clients of a run, with one shared history. Call `prepare`, then `begin`."""

    def __init__(
        self,
        loop: SimulatedLoop,
        plan: Plan,
        alarm: Alarm,
        leaders_end: Callable[[int], int],
        is_replaced: IsReplaced,
        leading_epoch: LeadingEpoch,
    ) -> None:
        self._loop, self._plan, self._alarm = loop, plan, alarm
        self._is_replaced, self._leading_epoch = is_replaced, leading_epoch
        self.history = HistoryBuilder(leaders_end)
        self.hosts: list[str] = []
        self.producers: list[SimulatedProducer] = []
        self.transactional: list[TransactionalClient] = []
        self.readers: list[Reader] = []
        self.members: list[SimulatedMember] = []
        self.consumer_members: list[SimulatedConsumerMember] = []
        self.share_members: list[SimulatedShareMember] = []
        self.share_observers: list[ShareObserver] = []
        self.share_groups: dict[str, int] = {}
        """The rows of share groups in the history, by name."""
        self.administrator: Administrator | None = None
        self.actions: Counter[str] = Counter()
        """Counts of client actions, by the names of `actions.ACTIONS`."""

    async def prepare(self) -> None:
        """Create the topic. Raises TimeoutError."""
        partitions = self._plan.partitions
        shares = {share.group: share.has_dead_letters for share in self._plan.share_members}
        await self._start("admin", lambda client: prepare(client, partitions, REPLICATION_FACTOR, MIN_ISR, shares))

    def begin(self) -> None:
        """Start all clients. Producers end after `stop`, once all sends are answered; other clients never end."""
        plan = self._plan
        for number, producer in enumerate(plan.producers):
            self._start(f"producer-{number}", self._producing(number, producer))
        for number in range(plan.consumers):
            # Every second consumer reads from any replica (KIP-392).
            self._start(f"consumer-{number}", self._consuming(number, READ_UNCOMMITTED, number % 2 == 1))
        for number in range(plan.members):
            self._start(f"member-{number}", self._taking_part(plan.consumers + number))
        self._start("inquirer", self._inquiring(plan.consumers + plan.members))
        for number in range(plan.seekers):
            self._start(f"seeker-{number}", self._seeking(plan.consumers + plan.members + 1 + number))
        further = plan.consumers + plan.members + 1 + plan.seekers
        for number in range(plan.committed_readers):
            self.history.reads_committed(further + number)
            self._start(
                f"committed-reader-{number}", self._consuming(further + number, READ_COMMITTED, number % 2 == 1)
            )
        further += plan.committed_readers
        for number, transactional in enumerate(plan.transactional):
            self.history.reads_committed(further + number)
            work = self._in_transactions(number, transactional, further + number)
            self._start(f"transactional-{number}", work)
        further += len(plan.transactional)
        for number, member in enumerate(plan.consumer_members):
            self._start(f"consumer-member-{number}", self._being_member(further + number, member))
        further += len(plan.consumer_members)
        for number, share in enumerate(plan.share_members):
            self._start(f"share-member-{number}", self._sharing(further + number, share))
        for share in {share.group: share for share in plan.share_members}.values():
            self.share_groups[share.group] = self.history.share_group(share.group_number, DELIVERY_LIMIT)
            self._start(f"observer-of-{share.group}", self._observing((share.group_number, share.group)))

    def rest(self) -> None:
        """Let the members of groups stay where they are, and accept what they get."""
        for member in self.consumer_members:
            member.rest()
        for sharing in self.share_members:
            sharing.rest()

    def administer(self, world: "World") -> None:
        """Start the administrator, and the clients of the topics that it creates and deletes."""

        async def administering(client: SimulatedClient) -> None:
            self.administrator = Administrator(world, client)
            await self.administrator.run(self._plan.chores)

        async def standing_by(client: SimulatedClient) -> None:
            await SimulatedBystander(client, self._alarm).run()

        self._start("administrator", administering)
        for topic in (SIDE_TOPIC, LOSSY_TOPIC):
            self._start(f"{topic}-client", standing_by, topic)

    def put_right(self, world: "World") -> "asyncio.Task[None] | None":
        """Stop the administrator, and restore what it has changed temporarily."""
        if (administrator := self.administrator) is None:
            return None
        administrator.is_resting = True

        async def putting_right(client: SimulatedClient) -> None:
            while administrator.under_way:
                await asyncio.sleep(PATIENCE_S)
            await Administrator(world, client).put_right()

        return self._start("caretaker", putting_right)

    def did(self, what: str) -> None:
        """Count an action."""
        assert what in ACTIONS, f"{what} is to be counted, and not in the catalogue"
        self.actions[what] += 1

    def _start(self, name: str, work: Work, topic: str = TOPIC) -> "asyncio.Task[None]":
        self.hosts.append(name)
        rng = random.Random(f"{self._plan.seed}/{name}")
        bootstrap = [(host_name(broker_id), KAFKA_PORT) for broker_id in self._plan.broker_ids]

        async def live() -> None:
            await work(SimulatedClient(name, topic, bootstrap, rng, self.did))

        return self._loop.create_task(live(), context=Process(name).context(), name=name)

    def _producing(self, number: int, plan: ProducerPlan) -> Work:
        partitions, rng = self._plan.partitions, random.Random(f"{self._plan.seed}/records of {number}")
        workload = AppendWorkload(
            number,
            partitions,
            rng,
            payload_bytes_max=plan.payload_bytes_max,
            has_lone_keys=self._plan.has_compacted_topic,
        )

        async def work(client: SimulatedClient) -> None:
            producer = SimulatedProducer(
                client, plan, number, workload, self.history, partitions, self._alarm, self._is_replaced
            )
            self.producers.append(producer)
            await producer.run()

        return work

    def _in_transactions(self, number: int, plan: TransactionalPlan, consumer: int) -> Work:
        """Return a program with transactions. `consumer` is its number among all consumers."""
        partitions, rng = self._plan.partitions, random.Random(f"{self._plan.seed}/transactional records of {number}")
        producer = len(self._plan.producers) + number
        workload = AppendWorkload(producer, partitions, rng, payload_bytes_max=plan.payload_bytes_max)
        has_steady_clocks = all(fault.kind is not FaultKind.CLOCK_JUMP for fault in self._plan.faults)

        async def work(client: SimulatedClient) -> None:
            reader = None
            if plan.input_partition is not None:
                reader = Reader(
                    client, consumer, plan.input_partition, self.history, self._alarm, isolation=READ_COMMITTED
                )
            transactional = TransactionalClient(
                client, plan, number, producer, workload, self.history, self._alarm, reader, has_steady_clocks
            )
            self.transactional.append(transactional)
            await transactional.run()

        return work

    def _consuming(self, number: int, isolation: int, any_replica: bool) -> Work:
        async def work(client: SimulatedClient) -> None:
            readers = [
                Reader(
                    client,
                    number,
                    partition,
                    self.history,
                    self._alarm,
                    any_replica=any_replica,
                    isolation=isolation,
                )
                for partition in range(self._plan.partitions)
            ]
            self.readers += readers
            await asyncio.gather(*(reader.run() for reader in readers))

        return work

    def _seeking(self, number: int) -> Work:
        async def work(client: SimulatedClient) -> None:
            await SeekingConsumer(client, number, self._plan.partitions, self.history, self._alarm).run()

        return work

    def _inquiring(self, number: int) -> Work:
        async def work(client: SimulatedClient) -> None:
            await OffsetClient(client, number, self._plan.partitions, self.history).run()

        return work

    def _taking_part(self, number: int) -> Work:
        async def work(client: SimulatedClient) -> None:
            member = SimulatedMember(client, number, self._plan.partitions, self.history, self._alarm)
            self.members.append(member)
            await member.run()

        return work

    def _being_member(self, number: int, plan: MemberPlan) -> Work:
        async def work(client: SimulatedClient) -> None:
            group = (plan.group_number, plan.group)
            membership = SimulatedMembership(client, number, group, self._plan.partitions, self.history, self._alarm)
            member = SimulatedConsumerMember(plan, membership)
            self.consumer_members.append(member)
            await member.run()

        return work

    def _sharing(self, number: int, plan: SharePlan) -> Work:
        async def work(client: SimulatedClient) -> None:
            member = SimulatedShareMember(client, number, plan, self.history, self._alarm, self._leading_epoch)
            self.share_members.append(member)
            await member.run()

        return work

    def _observing(self, group: tuple[int, str]) -> Work:
        async def work(client: SimulatedClient) -> None:
            observer = ShareObserver(client, group, self._plan.partitions, self.history)
            self.share_observers.append(observer)
            await observer.run()

        return work
