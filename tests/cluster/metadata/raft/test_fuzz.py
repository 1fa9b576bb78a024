"""Whatever happens to a quorum, what it acknowledged stays, everybody agrees, and it works again once all is well."""

import asyncio
import random

import pytest
from raft_fixture import RaftFixture, host, run

from cordwood.cluster.metadata.quorum import QuorumFailed
from cordwood.cluster.metadata.raft.messages import Standing

TROUBLE_S = 25.0


class Trouble:
    """Random faults and proposals for a while, then peace; and what was acknowledged meanwhile."""

    def __init__(self, quorum: RaftFixture, seed: int) -> None:
        self.quorum, self.rng = quorum, random.Random(seed * 7919)
        self.voters = sorted(quorum.addresses)
        self.acknowledged: list[str] = []
        self.proposed = 0
        self.proposing: set[asyncio.Task[None]] = set()

    async def make(self) -> None:
        end = self.quorum.loop.time() + TROUBLE_S
        while self.quorum.loop.time() < end:
            for _ in range(self.rng.choice((0, 1, 1, 4))):
                self.propose()
            if self.rng.random() < 0.4:
                self.do_harm()
            await self.quorum.wait(self.rng.expovariate(10))

    async def end(self) -> None:
        self.quorum.network.heal()
        self.quorum.start()
        await self.quorum.wait(10)
        await self.quorum.formed()

    def propose(self) -> None:
        if self.quorum.quorums:
            task = asyncio.create_task(self.put(self.rng.choice(sorted(self.quorum.quorums)), f"k{self.proposed}"))
            self.proposing.add(task)
            task.add_done_callback(self.proposing.discard)
            self.proposed += 1

    async def put(self, broker: int, key: str) -> None:
        if broker not in self.quorum.quorums:
            return
        try:
            image = await self.quorum.put(broker, key)
        except QuorumFailed:
            return
        assert key in image.configs_of_all_brokers
        self.acknowledged.append(key)

    def do_harm(self) -> None:
        """Often to the leader."""
        one, other = self.rng.sample(self.voters, 2)
        leaders = [at for at, voter in self.quorum.quorums.items() if voter.is_leader]
        if leaders and self.rng.random() < 0.4:
            one = leaders[0]
        harm = self.rng.choice((self.kill, self.wipe, self.hurt_network, self.hurt_network, self.heal))
        harm(one, other)

    def kill(self, one: int, _: int) -> None:
        down = [one] if self.rng.random() < 0.8 else self.voters
        for broker in down:
            if broker in self.quorum.quorums:
                self.rng.choice((self.quorum.kill, self.quorum.power_cut))(broker)
                self.later(2.0, broker)

    def wipe(self, one: int, _: int) -> None:
        if self.may_wipe(one):
            self.quorum.wipe(one)
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

    def heal(self, _one: int, _other: int) -> None:
        self.quorum.network.heal()

    def may_wipe(self, broker: int) -> bool:
        """A majority remembers, without this one: more is not survivable, and not promised."""
        running = self.quorum.quorums
        if len(running) < len(self.voters):
            return False
        remember = [voter for voter in running if self.quorum.standing(voter) is Standing.MEMBER]
        return len(set(remember) - {broker}) > len(self.voters) // 2

    def later(self, within_s: float, broker: int) -> None:
        delay_s = self.rng.uniform(0.02, within_s)
        self.quorum.loop.call_later(delay_s, self.restart, broker)

    def restart(self, broker: int) -> None:
        if broker not in self.quorum.quorums:
            self.quorum.start(broker)


async def story(seed: int, voters: int) -> None:
    rng = random.Random(seed)
    quorum = RaftFixture(seed=seed, voters=voters, snapshot_interval_bytes=rng.choice((600, 4_000, 1 << 20)))
    quorum.flush_s = rng.choice(((0.0001, 0.002), (0.001, 0.05)))
    quorum.start()
    await quorum.formed()
    trouble = Trouble(quorum, seed)
    await trouble.make()
    await trouble.end()
    await quorum.put(1, "after")
    await quorum.formed()
    assert quorum.failures == []
    images = [quorum.quorums[voter].image for voter in trouble.voters]
    missing = set(trouble.acknowledged) - set(quorum.keys(1))
    assert missing == set()
    assert all(image.broker_configs == images[0].broker_configs for image in images)
    assert len(trouble.acknowledged) > 20, "nothing was tried"


@pytest.mark.parametrize("seed", range(20))
def test_three_voters_in_trouble(seed: int) -> None:
    run(story(seed, 3))


@pytest.mark.parametrize("seed", range(5))
def test_five_voters_in_trouble(seed: int) -> None:
    run(story(seed, 5))
