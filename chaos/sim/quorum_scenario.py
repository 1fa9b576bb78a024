"""A random scenario for a Raft quorum: voters crash, lose their disks and have flipped bits; the network fails."""

import contextlib
import random

from cordwood.chaos.sim.loop import run
from cordwood.chaos.sim.quorum import SimulatedQuorum, host
from cordwood.chaos.sim.strict import strictly
from cordwood.cluster.metadata.commands import AllocateProducerIds, BrokerId
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import QuorumFailed
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.replication.tasks import Tasks

FAULTS_S = 25.0
BLOCK = 10
READMITTED_S = 12.0
"""The time after a voter's data loss in which no other voter loses data."""
ALONE_S = 1.2
"""The time in which a leader without followers steps down."""
HELD_UP_S = (2.0, 2.8)
"""The delay of responses to a leader: long enough to lead again, too short for the connection to be given up."""


class QuorumFaultInjector:
    """Random faults and proposals for a while, then recovery, with a record of what was acknowledged."""

    def __init__(self, quorum: SimulatedQuorum, seed: int) -> None:
        self.quorum, self.rng = quorum, random.Random(seed * 7919)
        self.voters: list[int] = sorted(quorum.addresses)
        self._repeating = random.Random(seed * 6007)
        self.acknowledged: list[str] = []
        self.taken_back: list[str] = []
        self.blocks: list[int] = []
        """The first ids of the allocated producer id blocks."""
        self.proposed = 0
        self._forgot_at = self._left_alone_until = float("-inf")
        self._proposals = Tasks()

    async def make(self) -> None:
        end = self.quorum.loop.time() + FAULTS_S
        while self.quorum.loop.time() < end:
            for _ in range(self.rng.choice((0, 1, 1, 4))):
                self.propose()
            if self._repeating.random() < 0.3:
                self.quorum.deliver_again(self._repeating)
            if self.rng.random() < 0.4 and self.quorum.loop.time() > self._left_alone_until:
                self.do_harm()
            await self.quorum.wait(self.rng.expovariate(10))

    async def end(self) -> None:
        self._left_alone_until = float("-inf")
        self.quorum.network.heal()
        self.quorum.start()
        await self.quorum.wait(10)
        await self.quorum.formed()

    def propose(self) -> None:
        if self.quorum.quorums:
            self._proposals.spawn(self.put(self.rng.choice(sorted(self.quorum.quorums)), f"k{self.proposed}"))
            self.proposed += 1

    async def put(self, broker: int, key: str) -> None:
        if broker not in self.quorum.quorums:
            return
        try:
            if self.rng.random() < 0.2:
                await self.allocate(broker)
            image = await self.quorum.put(broker, key)
        except QuorumFailed:
            return
        assert key in image.configs_of_all_brokers, f"{key} was acknowledged with an image that lacks it"
        if self._repeating.random() < 0.2:
            await self.take_back(broker, key)
        else:
            self.acknowledged.append(key)

    async def take_back(self, broker: int, key: str) -> None:
        with contextlib.suppress(QuorumFailed):
            await self.quorum.take_back(broker, key)
            self.taken_back.append(key)

    async def allocate(self, broker: int) -> None:
        """Allocate a block of producer ids. Without an answer, a broker later asks for the block that is then next."""
        first = self.quorum.quorums[broker].image.next_producer_id
        with contextlib.suppress(CommandRefused):
            await self.quorum.propose(broker, AllocateProducerIds(BrokerId(broker), first, BLOCK))
            assert first not in self.blocks, f"rule 9: two brokers were given the producer ids from {first} on"
            self.blocks.append(first)

    def do_harm(self) -> None:
        """Apply a random fault, often to the leader."""
        one, other = self.rng.sample(self.voters, 2)
        leaders = [at for at, voter in self.quorum.quorums.items() if voter.is_leader]
        if leaders and self.rng.random() < 0.4:
            one = leaders[0]
        harms = (self.kill, self.wipe, self.flip_bit, self.hurt_network, self.hurt_network, self.heal)
        if leaders and self.rng.random() < 0.03:
            self.hold_up_answers(leaders[0], one if one != leaders[0] else other)
        else:
            self.rng.choice(harms)(one, other)

    def kill(self, one: int, _: int) -> None:
        down = [one] if self.rng.random() < 0.8 else self.voters
        for broker in down:
            if broker in self.quorum.quorums:
                self.rng.choice((self.quorum.kill, self.quorum.power_cut))(broker)
                self.later(2.0, broker)

    def wipe(self, one: int, _: int) -> None:
        if self.may_wipe(one):
            self._forgot_at = self.quorum.loop.time()
            self.quorum.wipe(one)
            self.later(1.0, one)

    def flip_bit(self, one: int, _: int) -> None:
        """Flip a bit while the voter is down. The voter has to detect the damage, or not need the byte."""
        if not self.may_wipe(one):
            return
        self.quorum.kill(one)
        disk = self.quorum.disks[one]
        path = self.rng.choice([path for path in disk.files() if "damaged" not in path])
        disk.flip(path, self.rng.randrange(len(disk.content(path))), self.rng.randrange(8))
        self._forgot_at = self.quorum.loop.time()
        self.later(1.0, one)

    def hurt_network(self, one: int, other: int) -> None:
        match self.rng.randrange(4):
            case 0:
                self.quorum.network.disconnect(host(one), host(other))
            case 1:
                self.quorum.network.cut(host(one), host(other))
            case 2:
                self.quorum.network.cut_one_way(host(one), host(other))
            case _:
                self.quorum.cut_off(one)

    def hold_up_answers(self, leader: int, follower: int) -> None:
        """Delay a follower's responses until their leader has stepped down and perhaps leads again.

        The follower does not learn of the new term before its responses are delivered.
        """
        network, call_later = self.quorum.network, self.quorum.loop.call_later
        network.heal()
        here, there, others = host(leader), host(follower), set(self.voters) - {leader, follower}
        held_up_s = self.rng.uniform(*HELD_UP_S)
        network.cut_one_way(there, here)
        for other in others:
            network.cut(there, host(other))
            network.cut_one_way(host(other), here)
        call_later(0.3, network.cut_one_way, here, there)
        call_later(ALONE_S, network.heal, here, *map(host, others))
        call_later(held_up_s, self._let_through, there, here)
        self._left_alone_until = self.quorum.loop.time() + held_up_s + 0.2

    def _let_through(self, source: str, target: str) -> None:
        """Deliver delayed data in one direction only."""
        if self.quorum.loop.time() < self._left_alone_until:
            self.quorum.network.heal(source, target)
            self.quorum.network.cut_one_way(target, source)

    def heal(self, _one: int, _other: int) -> None:
        self.quorum.network.heal()

    def may_wipe(self, broker: int) -> bool:
        """Return whether a majority without this voter has its data; a larger loss is not survivable, nor promised."""
        running = self.quorum.quorums
        if len(running) < len(self.voters) or self.quorum.loop.time() < self._forgot_at + READMITTED_S:
            return False
        remember = [voter for voter in running if self.quorum.standing(voter) is Standing.MEMBER]
        return len(set(remember) - {broker}) > len(self.voters) // 2

    def later(self, within_s: float, broker: int) -> None:
        delay_s = self.rng.uniform(0.02, within_s)
        self.quorum.loop.call_later(delay_s, self.restart, broker)

    def restart(self, broker: int) -> None:
        if broker not in self.quorum.quorums:
            self.quorum.start(broker)


def run_quorum_scenario(seed: int) -> float:
    """Run faults, then recovery. Everything acknowledged is in every image, and all images are equal.

    Returns the simulated seconds. Raises ScenarioFailed with the first failure as its cause.
    """
    return run(strictly(_scenario(seed)))


async def _scenario(seed: int) -> float:
    rng = random.Random(seed)
    voters = rng.choice((3, 3, 3, 5))
    quorum = SimulatedQuorum(seed=seed, voters=voters, snapshot_interval_bytes=rng.choice((600, 4_000, 1 << 20)))
    quorum.flush_s, quorum.tells_late = rng.choice(((0.0001, 0.002), (0.001, 0.05))), True
    quorum.start()
    await quorum.formed()
    fault_injector = QuorumFaultInjector(quorum, seed)
    await fault_injector.make()
    await fault_injector.end()
    await quorum.put(1, "after")
    await quorum.formed()
    assert quorum.failures == [], f"a voter has given up: {quorum.failures}"
    images = [quorum.quorums[voter].image for voter in fault_injector.voters]
    missing = set(fault_injector.acknowledged) - set(quorum.keys(1))
    assert not missing, f"acknowledged, and gone: {sorted(missing)}"
    back = set(fault_injector.taken_back) & set(quorum.keys(1))
    assert not back, f"taken back, and there again: {sorted(back)}"
    assert all(image.broker_configs == images[0].broker_configs for image in images), "the images differ"
    assert len(fault_injector.acknowledged) > 10, "nothing was tried"
    await _is_left_alone(quorum)
    return quorum.loop.time()


async def _is_left_alone(quorum: SimulatedQuorum) -> None:
    """Check that a voter that rejoins after a partition does not end the leader's term (pre-vote)."""
    leader = await quorum.leader()
    absent = (await quorum.followers())[0]
    term = quorum.quorums[leader].term
    quorum.cut_off(absent)
    await quorum.wait(5)
    quorum.network.heal()
    await quorum.wait(3)
    assert quorum.quorums[leader].term == term, "a voter that was cut off has ended the term of a leader that was not"
