"""A random scenario for a consumer group: members join and leave, and coordinators are deposed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.replicas import ReplicaCluster, run_scenario
from cordwood.chaos.sim.replication import NOW_MS, ReplicaBroker
from cordwood.chaos.sim.strict import strictly
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import ReplicatedTopic
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import Commit, GroupCoordinator, MemberIdentity
from cordwood.cluster.groups.exchange import Join, MemberProtocol, Sync
from cordwood.cluster.groups.settings import GroupSettings, offsets_topic
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.storage.types import TopicPartition

GROUP, PLACE = "group", TopicPartition("flights", 0)
OFFSETS_ID = UUID(int=8)
SESSION_MS, REBALANCE_MS = 2_000, 3_000
SETTINGS = GroupSettings(session_timeout_ms_min=1_000, new_member_join_timeout_ms=REBALANCE_MS)
FAULTS_S = 40.0
LOOK_S = 0.02
PATIENCE_S = 5.0
PEACE_S = 60.0
MINE = b"mine"

_T = TypeVar("_T")


def run_group_scenario(seed: int) -> float:
    """Run faults for a while, then recovery. Committed offsets never go back, and former members commit nothing.

    Returns the simulated seconds. Raises ScenarioFailed with the first failure as its cause, or AssertionError.
    """
    return run_scenario(lambda cluster: strictly(_scenario(cluster)), seed)


async def _scenario(cluster: ReplicaCluster) -> None:
    cluster.sync_max_s = (0.01, 0.2)
    world = GroupWorld(cluster)
    members = [CountingMember(world, "anna"), CountingMember(world, "ben"), CountingMember(world, "static", "rack-1")]
    working = [asyncio.ensure_future(work) for work in (world.watch(), *(member.live() for member in members))]
    end = asyncio.get_running_loop().time() + FAULTS_S
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(cluster.rng.uniform(0.1, 3.0))
        await world.step()
        _must_be_well(working)
    await cluster.peace()
    committed_offset = world.committed_offset
    await cluster.until(lambda: world.is_past(committed_offset + 3), "the group goes on", PEACE_S)
    assert world.committed_offset > 10, "nothing was committed"
    _must_be_well(working)
    for task in working:
        task.cancel()


def _must_be_well(working: Sequence["asyncio.Future[None]"]) -> None:
    for task in working:
        if task.done():
            task.result()


class GroupWorld:
    """Brokers with a one-partition `__consumer_offsets`, a coordinator on each, and the observed state of one group."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster, self.rng = cluster, cluster.rng
        self.committed_offset = 0
        """The highest offset that any member or observer saw as committed."""
        self.generation = -1
        """The newest generation that any member has synced."""
        self.former: list[MemberIdentity] = []
        """Recent members with an assignment, of older generations too."""
        self.replaced: list[MemberIdentity] = []
        """Static members whose instance id another member has taken over."""
        self._static: dict[str | None, MemberIdentity] = {}
        self._owners: dict[int, str] = {}
        self._coordinators: dict[ReplicaBroker, GroupCoordinator] = {}
        replicas = (tuple(map(BrokerId, cluster.ids)),)
        cluster.metadata.commit(CreateTopic(OFFSETS_ID, CONSUMER_OFFSETS, replicas, (("min.insync.replicas", "2"),)))

    @property
    def partition(self) -> PartitionImage:
        """The partition that stores the group."""
        found = self.cluster.metadata.newest.partition(OFFSETS_ID, 0)
        assert found is not None, "it was created in the beginning"
        return found

    def of(self, broker: int) -> GroupCoordinator | None:
        """Return the coordinator of a running broker; None if the broker does not run."""
        running = self.cluster.running.get(broker)
        if running is None:
            return None
        if running not in self._coordinators:
            self._coordinators[running] = self._opened(running)
        return self._coordinators[running]

    def leading(self) -> GroupCoordinator | None:
        """Return the coordinator on the leader; None until the leader has learned of its role."""
        image = self.partition
        running = self.cluster.running.get(image.leader)
        held = None if running is None else running.replicas.get(CONSUMER_OFFSETS, 0)
        return self.of(image.leader) if held is not None and held.leads_in(image.leader_epoch) else None

    def has_share(self, member: MemberIdentity) -> None:
        """Record a synced member. Its generation is on disk, so every coordinator refuses members of earlier ones."""
        self.generation = max(self.generation, member.generation)
        if (before := self._static.get(member.instance_id)) is not None and before.member_id != member.member_id:
            self.replaced.append(before)
        if member.instance_id is not None:
            self._static[member.instance_id] = member
        self.former = [*self.former, member][-20:]

    def owns(self, name: str, generation: int) -> None:
        """Record that the member owns the partition in this generation. Fails if another member does too (rule 10)."""
        owner = self._owners.setdefault(generation, name)
        assert owner == name, f"rule 10: {owner} and {name} both have the partition in generation {generation}"

    async def step(self) -> None:
        """Apply one random fault, repair or stale commit."""
        cluster, rng = self.cluster, self.rng
        victim = rng.choice([int(self.partition.leader), *cluster.ids])
        down = [broker for broker in cluster.ids if broker not in cluster.running]
        kinds = ["kill", "cut", "one way", "depose", "depose", "heal", "heal", "restart", "stale", "stale", "stale"]
        match rng.choice(kinds):
            case "kill" if victim in cluster.running and not down:
                await rng.choice([cluster.kill, cluster.power_cut])(victim)
            case "cut" if victim in cluster.ids:
                cluster.cut_off(victim)
            case "one way":
                cluster.cut(*rng.sample(cluster.ids, 2))
            case "depose":
                await self._depose_twice()
            case "heal":
                cluster.heal()
            case "stale":
                await self._commit_stale()
            case _:
                for broker in down:
                    cluster.start(broker)

    async def watch(self) -> None:
        """Check forever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Check that the leading coordinator returns no lower offset than was observed before."""
        coordinator = self.leading()
        if coordinator is None:
            return
        try:
            found = coordinator.offsets_of(GROUP)
        except Refused:
            return
        offset = found[PLACE].offset if PLACE in found else 0
        assert offset >= self.committed_offset, f"rule 10: {offset} is committed after {self.committed_offset}"
        self.committed_offset = offset

    def is_past(self, offset: int) -> bool:
        """Return whether an offset above `offset` is committed, after a check."""
        self.look()
        return self.committed_offset > offset

    async def _depose_twice(self) -> None:
        """Depose two coordinators in a row, the second soon after its election."""
        cluster = self.cluster
        cluster.heal()
        first = int(self.partition.leader)
        cluster.cut_off(first)
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while self.partition.leader in (first, NO_LEADER) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(self.rng.uniform(0, 0.2))
        cluster.cut_off(int(self.partition.leader))
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        cluster.heal()

    async def _commit_stale(self) -> None:
        """Commit as a member of an older generation, as an unknown member, or as a replaced static member."""
        coordinator = self.leading()
        stale = [member for member in self.former if member.generation < self.generation] + self.replaced[-3:]
        if coordinator is None or not stale:
            return
        member = self.rng.choice(stale)
        if self.rng.random() < 0.3:
            member = MemberIdentity("stranger", self.generation)
        if self.rng.random() < 0.3:
            reply = await answered(coordinator.sync(GROUP, Sync(member.member_id, member.generation)))
            assert reply is None or reply.code is not ErrorCode.none, f"rule 10: {member} was given a share"
        codes = await answered(coordinator.commit(GROUP, member, {PLACE: Commit(0, -1, "")}))
        assert codes is None or ErrorCode.none not in codes.values(), f"rule 10: {member} has committed"

    def _opened(self, running: ReplicaBroker) -> GroupCoordinator:
        settings = Settings(node_id=running.broker_id)
        topic = ReplicatedTopic(
            offsets_topic(settings),
            running.member,  # type: ignore[arg-type]
            running.replicas,
            settings,
            _wall_clock,
            self.rng,
        )
        coordinator = GroupCoordinator(
            context=GroupContext(SETTINGS),
            topic=topic,
            topic_exists=lambda _: True,
            wall_clock=_wall_clock,
            rng=self.rng,
        )
        running.member.subscribe(coordinator.on_metadata_change)
        coordinator.start()
        return coordinator


class CountingMember:
    """A consumer that increments its committed offset while it owns the partition. Static with an `instance_id`."""

    def __init__(self, world: GroupWorld, name: str, instance_id: str | None = None) -> None:
        self._world, self._rng = world, world.rng
        self._name, self._instance_id = name, instance_id
        self._id, self._generation = "", -1
        self._asked: GroupCoordinator | None = None

    async def live(self) -> None:
        """Run forever: join, work until the generation ends, and sometimes lose the member id."""
        while True:
            share = await self._share()
            if share is not None:
                await self._work(is_owner=share == MINE)
            if self._rng.random() < 0.1:
                self._id = ""
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))

    async def _share(self) -> bytes | None:
        reply = await self._ask(lambda coordinator: coordinator.join(GROUP, self._join()))
        if reply is None:
            return None
        if reply.code is not ErrorCode.none:
            self._id = reply.member_id if reply.code is ErrorCode.member_id_required else ""
            return None
        self._id, self._generation = reply.member_id, reply.generation
        shares = {member.member_id: b"" for member in reply.members}
        if shares:
            shares[self._rng.choice(sorted(shares))] = MINE
        sync = Sync(self._id, self._generation, self._instance_id, assignments=shares)
        synced = await self._ask(lambda coordinator: coordinator.sync(GROUP, sync))
        if synced is None or synced.code is not ErrorCode.none:
            return None
        self._world.has_share(self._identity)
        if synced.assignment == MINE:
            self._world.owns(self._name, self._generation)
        return synced.assignment

    async def _work(self, *, is_owner: bool) -> None:
        """Heartbeat and commit until an error. A request without an answer is sent to another broker."""
        offset = self._fetched() if is_owner else None
        for _ in range(self._rng.randrange(5, 60)):
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))
            code = await self._ask(_at_once(lambda coordinator: coordinator.heartbeat(GROUP, self._identity)))
            if code not in (None, ErrorCode.none):
                return
            if offset is not None:
                offset += await self._committed(offset + 1)

    async def _committed(self, offset: int) -> bool:
        commit = {PLACE: Commit(offset, -1, "")}
        codes = await self._ask(lambda coordinator: coordinator.commit(GROUP, self._identity, commit))
        if codes is None or codes[PLACE] is not ErrorCode.none:
            return False
        self._world.committed_offset = max(self._world.committed_offset, offset)
        return True

    def _fetched(self) -> int | None:
        """Fetch the committed offset from the coordinator that gave the assignment; a deposed one may be outdated."""
        try:
            found = self._asked.offsets_of(GROUP) if self._asked is not None else {}
        except Refused:
            return None
        return found[PLACE].offset if PLACE in found else 0

    @property
    def _identity(self) -> MemberIdentity:
        return MemberIdentity(self._id, self._generation, self._instance_id)

    def _join(self) -> Join:
        protocols = (MemberProtocol("range", b""),)
        return Join(self._id, "consumer", protocols, SESSION_MS, REBALANCE_MS, self._instance_id, self._name)

    async def _ask(self, ask: Callable[[GroupCoordinator], Awaitable[_T]]) -> _T | None:
        """Ask a random coordinator, most often that of the known leader, which may be deposed."""
        coordinator = self._world.of(
            self._rng.choice([int(self._world.partition.leader)] * 5 + [*self._world.cluster.ids])
        )
        self._asked = coordinator
        return None if coordinator is None else await answered(ask(coordinator))


async def answered(request: Awaitable[_T]) -> _T | None:
    """Return the answer; None if the request is refused, or not answered in PATIENCE_S."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await request
    except (Refused, TimeoutError):
        return None


def _at_once(ask: Callable[[GroupCoordinator], _T]) -> Callable[[GroupCoordinator], Awaitable[_T]]:
    async def asked(coordinator: GroupCoordinator) -> _T:
        return ask(coordinator)

    return asked


def _wall_clock() -> int:
    return NOW_MS + round(asyncio.get_running_loop().time() * 1000)
