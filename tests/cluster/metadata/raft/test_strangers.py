"""Connections to a quorum's port without membership: garbage, other clusters, a wrong secret."""

import asyncio

import pytest

from cordwood.chaos.sim.loop import Process
from cordwood.chaos.sim.quorum import PORT, SimulatedQuorum, formed, host, run


class Knocker(asyncio.Protocol):
    """A connection that sends some bytes and notices its end."""

    def __init__(self, words: bytes) -> None:
        self.words, self.is_over = words, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.words)

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_over = True


def knock(quorum: SimulatedQuorum, voter: int, words: bytes) -> Knocker:
    knocker = Knocker(words)
    quorum._spawn(Process("stranger"), quorum.loop.create_connection(lambda: knocker, host(voter), PORT))
    return knocker


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        b"\x05\x00\x00\x00hello",
        b"\x00\x00\x00\x04\x93\x01\x02\x03",
        b"",
        b"\x00\x00\x00\x00" * 50,
    ],
    ids=repr,
)
def test_garbage_closes_its_connection_and_does_nothing_else(words: bytes) -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        knockers = [knock(quorum, voter, words) for voter in quorum.quorums]
        await quorum.until(lambda: all(knocker.is_over for knocker in knockers), seconds=5)
        await quorum.put(1, "a")
        assert await quorum.leader() == leader
        assert quorum.failures == quorum.refusals == []

    run(story())


def test_many_strangers_are_too_many() -> None:
    async def story() -> None:
        quorum = await formed()
        knockers = [knock(quorum, 1, b"") for _ in range(400)]
        await quorum.until(lambda: sum(knocker.is_over for knocker in knockers) >= 140, seconds=1)
        await quorum.until(lambda: all(knocker.is_over for knocker in knockers), seconds=10)
        await quorum.put(1, "a")

    run(story())


def test_strangers_that_never_stop_keep_no_voter_out() -> None:
    async def story() -> None:
        quorum = await formed()

        async def keep_knocking() -> None:
            while True:
                for _ in range(20):
                    knock(quorum, 1, b"")
                await asyncio.sleep(0.02)

        knocking = asyncio.get_running_loop().create_task(keep_knocking())
        await quorum.wait(1)
        quorum.network.disconnect(host(1), host(2))
        quorum.network.disconnect(host(1), host(3))
        async with asyncio.timeout(1.5):
            await quorum.put(1, "a")
        knocking.cancel()

    run(story())


@pytest.mark.parametrize("stranger", [1, 2, 3])
def test_a_voter_of_another_cluster_is_refused_and_the_others_go_on(stranger: int) -> None:
    async def story() -> None:
        theirs, quorum = await formed(seed=2), await formed(seed=1)
        quorum.take_disk_of(stranger, theirs)
        await quorum.until(lambda: quorum.refusals)
        broker, reason = quorum.refusals[0]
        assert broker == stranger
        assert "belongs to cluster" in reason
        await quorum.wait(5)
        assert {broker for broker, _ in quorum.refusals} == {stranger}
        others = [voter for voter in quorum.quorums if voter != stranger]
        await quorum.put(others[0], "a")

    run(story())


def test_an_observer_of_another_cluster_is_refused() -> None:
    async def story() -> None:
        quorum = await formed()
        quorum.observe(7, cluster_id="another")
        await quorum.until(lambda: quorum.refusals)
        assert quorum.refusals[0][0] == 7
        assert "broker 7 belongs to cluster another" in quorum.refusals[0][1]

    run(story())


def test_a_voter_without_the_secret_is_refused() -> None:
    async def story() -> None:
        quorum = SimulatedQuorum()
        for voter in (1, 2, 3):
            quorum.start(voter, secret="sesame")
        await quorum.formed()
        quorum.observe(7, secret="guess")
        quorum.observe(8)
        await quorum.until(lambda: {broker for broker, _ in quorum.refusals} == {7, 8})
        assert all("controller.quorum.secret" in reason for _, reason in quorum.refusals)
        quorum.observe(9, secret="sesame")
        await quorum.formed(9)
        await quorum.put(9, "a")

    run(story())


@pytest.mark.parametrize("stranger", [1, 2, 3])
def test_a_voter_with_another_secret_stays_out(stranger: int) -> None:
    async def story() -> None:
        quorum = SimulatedQuorum()
        for voter in (1, 2, 3):
            quorum.start(voter, secret="sesame")
        await quorum.formed()
        quorum.kill(stranger)
        quorum.start(stranger, secret="guess")
        await quorum.until(lambda: quorum.refusals)
        await quorum.wait(5)
        assert {broker for broker, _ in quorum.refusals} == {stranger}

    run(story())
