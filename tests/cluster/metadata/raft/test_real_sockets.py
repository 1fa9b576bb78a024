"""A quorum of three voters over real loopback sockets, a real disk and a real clock."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loopback_quorum import VOTERS, Loopback

from cordwood.chaos.sim.quorum import setting
from cordwood.cluster.metadata.quorum import QuorumUnavailable
from cordwood.cluster.metadata.raft.messages import Standing

Story = Callable[[Loopback], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Story], None]:
    """Return a function that runs a scenario of three voters that have formed a quorum."""

    async def reported(story: Story) -> None:
        with ThreadPoolExecutor(2) as executor:
            quorum = Loopback(tmp_path, executor)
            await quorum.start(*VOTERS)
            try:
                await quorum.formed()
                await story(quorum)
                assert quorum.failures == []
            finally:
                await quorum.close()

    return lambda story: asyncio.run(within(60, reported(story)))


async def within(seconds: float, work: Awaitable[None]) -> None:
    await asyncio.wait_for(work, seconds)


def test_everybody_proposes_and_sees_it(tell: Callable[[Story], None]) -> None:
    async def story(quorum: Loopback) -> None:
        observer = await quorum.observe()
        for voter in VOTERS:
            await quorum.put(voter, f"of {voter}")
        await observer.propose(setting("of 7"))
        assert list(observer.image.configs_of_all_brokers) == ["of 1", "of 2", "of 3", "of 7"]

    tell(story)


def test_voters_come_and_go(tell: Callable[[Story], None]) -> None:
    async def story(quorum: Loopback) -> None:
        for turn, voter in enumerate(VOTERS):
            await quorum.stop(voter)
            await quorum.put(VOTERS[turn - 1], f"without {voter}")
            await quorum.start(voter)
            await quorum.formed()
        assert quorum.keys(1) == quorum.keys(2) == quorum.keys(3) == [f"without {voter}" for voter in VOTERS]

    tell(story)


def test_a_wiped_voter_is_readmitted(tell: Callable[[Story], None]) -> None:
    async def story(quorum: Loopback) -> None:
        await quorum.put(1, "a")
        await quorum.wipe(2)
        await quorum.until(lambda: quorum.standing(2) is Standing.MEMBER)
        assert quorum.keys(2) == ["a"]

    tell(story)


def test_two_wiped_voters_are_too_many(tell: Callable[[Story], None]) -> None:
    async def story(quorum: Loopback) -> None:
        await quorum.put(1, "a")
        await quorum.wipe(2, 3)
        await quorum.until(lambda: quorum.standing(2) is quorum.standing(3) is Standing.AMNESIAC)
        with pytest.raises(QuorumUnavailable):
            await quorum.put(1, "b")

    tell(story)


def test_a_damaged_journal_is_fetched_again(tell: Callable[[Story], None]) -> None:
    async def story(quorum: Loopback) -> None:
        await quorum.put(1, "a")
        await quorum.stop(2)
        journal = quorum.metadata(2) / "journal"
        content = bytearray(journal.read_bytes())
        content[len(content) // 2] ^= 1
        journal.write_bytes(content)
        await quorum.start(2)
        assert len(quorum.quorums[2].damage) == 1
        await quorum.until(lambda: quorum.standing(2) is Standing.MEMBER)
        assert quorum.keys(2) == ["a"]

    tell(story)


def test_garbage_on_the_port_is_shown_the_door(tell: Callable[[Story], None]) -> None:
    async def story(quorum: Loopback) -> None:
        reader, writer = await asyncio.open_connection(*quorum.address(1))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await quorum.put(1, "a")

    tell(story)
