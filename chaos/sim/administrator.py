"""The simulated administrator: topics, configs, replicas and leader elections, by Kafka's admin requests.

A refused request is not repeated; the administrator continues with the next chore.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.checks.unavailable import NO_BOUND
from cordwood.chaos.sim.chores import LOSSY_TOPIC, SIDE_TOPIC, Chore, Due
from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.chaos.sim.plan import MIN_ISR, TOPIC
from cordwood.cluster.balance import planner
from cordwood.cluster.balance.execution import Execution
from cordwood.cluster.balance.load import ClusterLoad
from cordwood.cluster.balance.plan import BalancePlan
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.cordons import ALL_DIRECTORIES, CORDONED
from cordwood.cluster.metadata.image import PartitionImage
from cordwood.cluster.proposals.cluster_load import load_of
from cordwood.storage.steps import at_once

if TYPE_CHECKING:
    from cordwood.chaos.sim.world import World

TIMEOUT_S = 5.0
ASKED_MAX = 3
WAIT_S = 12.0
"""The longest wait for a broker to lose its replicas, or for other brokers to notice that a broker is down."""
RETRY_S = 0.5
PREFERRED, UNCLEAN = 0, 1
"""Election types of ElectLeaders."""
OF_TOPIC, OF_BROKER = 2, 4
"""Resource types of IncrementalAlterConfigs."""
SET = 0
PARTITIONS_MAX = 5
COPIES_AT_ONCE = 2

Doing = Callable[[random.Random], Coroutine[Any, Any, bool]]
"""One chore. Returns whether it was done, or refused by the broker."""


class Administrator:
    """Executor of due chores, concurrently, until `is_resting`."""

    def __init__(self, world: "World", client: SimulatedClient) -> None:
        self._world, self._client = world, client
        self.is_resting = False
        self.under_way = 0
        """The number of chores that have started and not finished."""
        self._made: set[str] = set()
        self._chores: dict[Chore, Doing] = {
            Chore.TOPIC_MADE: self._make_topic,
            Chore.TOPIC_DELETED: self._delete_topic,
            Chore.PARTITIONS_ADDED: self._add_partitions,
            Chore.LOSSY_TOPIC_MADE: self._make_lossy_topic,
            Chore.RECORDS_DELETED: self._delete_records,
            Chore.REPLICAS_MOVED: self._move_replicas,
            Chore.PREFERRED_ELECTION: lambda dice: self._elect(PREFERRED, dice.choice((TOPIC, SIDE_TOPIC))),
            Chore.UNCLEAN_ELECTION: self._lose_leader,
            Chore.TOPIC_CONFIG: self._change_topic,
            Chore.BROKER_CONFIG: self._change_brokers,
            Chore.MIN_ISR: self._change_min_isr,
            Chore.FLUSH_POLICY: self._change_flush_policy,
            Chore.UNREGISTERED: self._unregister,
            Chore.DIRECTORIES_CHANGED: self._change_directories,
        }

    async def run(self, chores: tuple[Due, ...]) -> None:
        """Start each chore at its time, counted from now."""
        began_s = self._world.now_s
        for due in chores:
            await asyncio.sleep(max(0.0, began_s + due.at_s - self._world.now_s))
            if self.is_resting:
                return
            self._world.loop.create_task(self._do(due))

    async def _do(self, due: Due) -> None:
        self.under_way += 1
        try:
            if await self._chores[due.chore](random.Random(due.dice)):
                self._world.note(due.chore.value)
                self._client.did(due.chore.value)
        finally:
            self.under_way -= 1

    async def put_right(self) -> None:
        """Restore `min.insync.replicas` of TOPIC, and elect leaders for LOSSY_TOPIC, unclean if need be."""
        while not await self._configure(OF_TOPIC, TOPIC, {"min.insync.replicas": str(MIN_ISR)}):
            await asyncio.sleep(1.0)
        while LOSSY_TOPIC in self._world.image.topics_by_name and any(
            partition.leader < 0 for partition in self._partitions(LOSSY_TOPIC)
        ):
            if await self._elect(UNCLEAN, LOSSY_TOPIC):
                self._client.did(Chore.UNCLEAN_ELECTION.value)
            await asyncio.sleep(1.0)

    async def _make_topic(self, dice: random.Random) -> bool:
        return await self._create(
            SIDE_TOPIC,
            dice.randint(1, 3),
            3,
            {
                "retention.ms": dice.choice(("500", "3000")),
                "segment.bytes": dice.choice(("2000", "20000")),
                "min.insync.replicas": "2",
            },
        )

    async def _make_lossy_topic(self, dice: random.Random) -> bool:
        replicas = dice.choice((1, 2, 2, 3))
        policy = dice.choice(("os", "group"))
        if not await self._create(
            LOSSY_TOPIC, dice.randint(1, 3), replicas, {"flush.policy": policy, "min.insync.replicas": "1"}
        ):
            return False
        self._client.did(f"replication-factor-{replicas}")
        if policy == "os":
            self._client.did("flush-policy-os")
        return True

    async def _create(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> bool:
        api = ApiKey.CREATE_TOPICS
        rows = tuple(part(api, "CreatableTopicConfig", name=key, value=value) for key, value in configs.items())
        topic = part(
            api,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=rows,
        )
        is_made = await self._ask(message(api, topics=(topic,), timeout=duration(TIMEOUT_S), validate_only=False))
        if is_made and name in self._made:
            self._client.did("topic-made-again")
        if is_made:
            self._made.add(name)
        return is_made

    async def _delete_topic(self, dice: random.Random) -> bool:
        api = ApiKey.DELETE_TOPICS
        topic = part(api, "DeleteTopicState", name=self._existing(dice), topic_id=None)
        return await self._ask(message(api, topics=(topic,), timeout=duration(TIMEOUT_S)))

    async def _add_partitions(self, dice: random.Random) -> bool:
        api, name = ApiKey.CREATE_PARTITIONS, self._existing(dice)
        count = len(self._partitions(name)) + 1
        if not 1 < count <= PARTITIONS_MAX:
            return False
        topic = part(api, "CreatePartitionsTopic", name=name, count=count, assignments=None)
        return await self._ask(message(api, topics=(topic,), timeout=duration(TIMEOUT_S), validate_only=False))

    async def _delete_records(self, dice: random.Random) -> bool:
        """Delete records up to an offset between 0 and the committed end, which may lie inside a batch."""
        api, name = ApiKey.DELETE_RECORDS, dice.choice((TOPIC, TOPIC, SIDE_TOPIC))
        partitions = self._partitions(name)
        if not partitions:
            return False
        index = dice.randrange(len(partitions))
        end = self._world.committed_end(index, name)
        before = dice.randint(0, end)
        row = part(api, "DeleteRecordsPartition", partition_index=index, offset=before)
        topic = part(api, "DeleteRecordsTopic", name=name, partitions=(row,))
        request = message(api, topics=(topic,), timeout=duration(TIMEOUT_S))
        address, history = self._address(int(partitions[index].leader)), self._world.clients.history
        deletion = history.delete(index, self._client.now_ns, before=before) if name == TOPIC else None
        is_done = await self._ask(request, address)
        if is_done and deletion is not None:
            history.deleted(deletion, self._client.now_ns)
        return is_done

    async def _move_replicas(self, dice: random.Random) -> bool:
        """Reassign the replicas of a partition. Without spare brokers only the preferred replica changes."""
        name = dice.choice((TOPIC, SIDE_TOPIC, LOSSY_TOPIC))
        partitions = self._partitions(name)
        if not partitions:
            return False
        index = dice.randrange(len(partitions))
        brokers = dice.sample(self._world.plan.broker_ids, len(partitions[index].replicas))
        return await self._move(name, index, brokers)

    async def _move(self, name: str, index: int, brokers: list[int]) -> bool:
        api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        row = part(api, "ReassignablePartition", partition_index=index, replicas=tuple(map(BrokerId, brokers)))
        topic = part(api, "ReassignableTopic", name=name, partitions=(row,))
        return await self._ask(message(api, timeout=duration(TIMEOUT_S), topics=(topic,)))

    async def _elect(self, election: int, name: str) -> bool:
        api = ApiKey.ELECT_LEADERS
        indexes = tuple(range(len(self._partitions(name))))
        if not indexes:
            return False
        rows = part(api, "TopicPartitions", topic=name, partitions=indexes)
        request = message(api, election_type=election, topic_partitions=(rows,), timeout=duration(TIMEOUT_S))
        answer = await self._answer(request)
        # Some of several partitions may need no election.
        return answer is not None and ErrorCode.none in set(_codes(answer.replica_election_results))

    async def _lose_leader(self, dice: random.Random) -> bool:
        """Elect a replica that was down while its leader accepted records, so that it lacks committed records."""
        world = self._world
        pairs = [partition for partition in self._partitions(LOSSY_TOPIC) if len(partition.replicas) == 2]
        if not pairs:
            return False
        pair = dice.choice(pairs)
        leader = int(pair.leader)
        other = next(int(replica) for replica in pair.replicas if replica != leader)
        if leader not in world.hosts:
            return await self._elect(UNCLEAN, LOSSY_TOPIC)
        try:
            self._hold(other)
            if not await self._until(lambda: any({*one.isr} == {leader} for one in self._partitions(LOSSY_TOPIC))):
                return False
            self._hold(leader)
            world.start(other)
            return await self._until_done(lambda: self._elect(UNCLEAN, LOSSY_TOPIC))
        finally:
            for broker in (leader, other):
                world.start(broker)

    async def _change_topic(self, dice: random.Random) -> bool:
        name = dice.choice((TOPIC, SIDE_TOPIC))
        return await self._configure(OF_TOPIC, name, {"segment.bytes": dice.choice(("3000", "30000", "1000000"))})

    async def _change_brokers(self, dice: random.Random) -> bool:
        broker = dice.choice(("", *map(str, self._world.plan.broker_ids)))
        return await self._configure(OF_BROKER, broker, {"log.segment.bytes": dice.choice(("4000", "40000"))})

    async def _change_min_isr(self, dice: random.Random) -> bool:
        """Change the min ISR of TOPIC, which ends the availability bounds of the faults before.

        It stays at MIN_ISR or above while a disk has lost data.
        """
        self._end_bounds()
        wanted = dice.randint(1, 3)
        if wanted < MIN_ISR and self._world.has_injuries():
            return False
        return await self._configure(OF_TOPIC, TOPIC, {"min.insync.replicas": str(wanted)})

    async def _change_flush_policy(self, dice: random.Random) -> bool:
        policy = dice.choice(("os", "group"))
        is_done = await self._configure(OF_TOPIC, LOSSY_TOPIC, {"flush.policy": policy})
        if is_done and policy == "os":
            self._client.did("flush-policy-os")
        return is_done

    async def _configure(self, kind: int, name: str, values: dict[str, str]) -> bool:
        api = ApiKey.INCREMENTAL_ALTER_CONFIGS
        rows = tuple(
            part(api, "AlterableConfig", name=key, config_operation=SET, value=value) for key, value in values.items()
        )
        resource = part(api, "AlterConfigsResource", resource_type=kind, resource_name=name, configs=rows)
        return await self._ask(message(api, resources=(resource,), validate_only=False))

    async def _unregister(self, dice: random.Random) -> bool:
        """Cordon and drain a broker that is not a voter, kill it, unregister it, start it again, and balance."""
        world = self._world
        others = [broker for broker in world.plan.broker_ids if broker > world.plan.voters]
        if not others:
            return False
        broker = dice.choice(others)
        await self._configure(OF_BROKER, str(broker), {CORDONED: ALL_DIRECTORIES})
        try:
            if not await self._drain(broker) or not world.hosts[broker].is_running:
                return False
            self._hold(broker)
            request = message(ApiKey.UNREGISTER_BROKER, broker_id=BrokerId(broker))
            try:
                return await self._until_done(lambda: self._ask(request))
            finally:
                world.start(broker)
        finally:
            await self._until_done(lambda: self._configure(OF_BROKER, str(broker), {CORDONED: ""}))
            await self._make(planner.balance)

    async def _change_directories(self, dice: random.Random) -> bool:
        """Move some replicas of a broker to other log directories."""
        host = self._world.hosts[dice.choice(sorted(self._world.hosts))]
        held = [] if host.watched is None else sorted((one.topic, one.index) for one in host.watched.replicas)
        if not held:
            return False
        api = ApiKey.ALTER_REPLICA_LOG_DIRS
        wanted = [(dice.choice(host.settings.log_dirs), *dice.choice(held)) for _ in range(dice.randint(1, 3))]
        rows = [
            part(api, "AlterReplicaLogDir", path=path, topics=(_topic_of(api, name, index),))
            for path, name, index in wanted
        ]
        return await self._ask(message(api, dirs=tuple(rows)), host.address)

    async def _drain(self, broker: int) -> bool:
        """Move all replicas of a broker away, as plans of drains say. Return whether it has none left."""
        deadline_s = self._world.now_s + WAIT_S
        while self._world.now_s < deadline_s and not self.is_resting:
            topics = self._world.image.topics_by_id.values()
            if not any(broker in partition.replicas for topic in topics for partition in topic.partitions):
                return True
            await self._make(lambda load: planner.drain(load, [broker]))
            await asyncio.sleep(1.0)
        return False

    async def _make(self, plan_of: Callable[[ClusterLoad], Generator[None, None, BalancePlan]]) -> None:
        """Begin the first moves of a plan."""
        load = at_once(load_of(self._world.image, {}, {}))
        for move in Execution(at_once(plan_of(load)).moves, COPIES_AT_ONCE).begin():
            await self._move(move.topic, move.index, list(move.after))

    def _end_bounds(self) -> None:
        """Record in the history that the availability bounds of the faults before end here."""
        now_ns = self._client.now_ns
        self._world.clients.history.fault(NO_BOUND, now_ns, now_ns, is_alone=False)

    def _hold(self, broker: int) -> None:
        """Kill a broker, and keep it down. With a broker that a fault took down it may be the majority."""
        self._end_bounds()
        self._world.held.add(broker)
        self._world.hosts[broker].kill()

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition, up to WAIT_S. Return whether it was met."""

        async def is_met() -> bool:
            return condition()

        return await self._until_done(is_met)

    async def _until_done(self, ask: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """Retry an action as `_until` does."""
        deadline_s = self._world.now_s + WAIT_S
        while not (is_done := await ask()) and not self.is_resting and self._world.now_s < deadline_s:
            await asyncio.sleep(RETRY_S)
        return is_done

    def _existing(self, dice: random.Random) -> str:
        """Return SIDE_TOPIC or LOSSY_TOPIC, preferably one that exists."""
        names = [SIDE_TOPIC, LOSSY_TOPIC]
        return dice.choice([name for name in names if self._partitions(name)] or names)

    def _partitions(self, name: str) -> tuple[PartitionImage, ...]:
        topic = self._world.image.topics_by_name.get(name)
        return () if topic is None else tuple(topic.partitions)

    def _address(self, broker: int) -> tuple[str, int] | None:
        host = self._world.hosts.get(broker)
        return None if host is None else host.address

    async def _ask(self, request: Any, address: tuple[str, int] | None = None) -> bool:
        """Return whether the request succeeded completely."""
        answer = await self._answer(request, address)
        return answer is not None and all(code is ErrorCode.none for code in _codes(answer))

    async def _answer(self, request: Any, address: tuple[str, int] | None = None) -> Any:
        """Return the response; None if none of ASKED_MAX brokers answered."""
        for _ in range(ASKED_MAX):
            with contextlib.suppress(OSError):
                return await self._client.ask(address or self._client.anybody(), request)
        return None


def _topic_of(api: ApiKey, name: str, index: int) -> Any:
    return part(api, "AlterReplicaLogDirTopic", name=name, partitions=(index,))


def _codes(answer: Any) -> Iterator[ErrorCode]:
    """Yield every error code in a response."""
    if isinstance(answer, ErrorCode):
        yield answer
    elif isinstance(answer, tuple):
        for row in answer:
            yield from _codes(row)
    elif is_dataclass(answer):
        for field in fields(answer):
            yield from _codes(getattr(answer, field.name))
