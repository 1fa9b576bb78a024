"""A quorum of one voter on a simulated disk."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic, Endpoint, RegisterBroker
from cordwood.cluster.metadata.features import SUPPORTED
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumOptions, SingleVoter

DIRECTORY = "/data/metadata"
COPY = "/data/metadata/copy"
ONE = BrokerId(1)


class QuorumFixture:
    """A quorum of one voter. A closed `gate` blocks syncs."""

    def __init__(self, seed: int = 1, snapshot_interval_bytes: int = 1 << 20) -> None:
        self.disk = SimulatedDisk(random.Random(seed))
        self.rng = random.Random(seed)
        self.snapshot_interval_bytes = snapshot_interval_bytes
        self.syncs = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[QuorumFailed] = []
        self.changes: list[tuple[int, int]] = []
        self.open()

    def open(self, cluster_id: str = "") -> Image:
        options = options_of_one(
            self.rng,
            run_blocking=self.run_blocking,
            cluster_id=cluster_id,
            snapshot_interval_bytes=self.snapshot_interval_bytes,
            on_failure=self.failures.append,
        )
        self.voter = SingleVoter.open(self.disk, DIRECTORY, options)
        self.voter.subscribe(lambda old, new: self.changes.append((old.index, new.index)))
        return self.voter.image

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # A sync has no arguments, a snapshot has.
        if not arguments:
            self.syncs += 1
            await self.gate.wait()
        return function(*arguments)

    async def create(self, *names: str) -> list[Image]:
        return await asyncio.gather(*(self.voter.propose(topic(name)) for name in names))

    def power_cut(self, keep: float | None = 0) -> Image:
        self.disk.power_cut(keep)
        return self.open()

    def names(self) -> list[str]:
        return list(self.voter.image.topics_by_name)


async def run_here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def options_of_one(rng: random.Random, **options: Any) -> QuorumOptions:
    """Return the options of broker 1 as the only voter. No failure is expected."""

    def unexpected(failure: object) -> None:
        raise AssertionError(failure)

    usual = {"run_blocking": run_here, "on_failure": unexpected, "on_refused": unexpected}
    return QuorumOptions(node_id=ONE, rng=rng, **{**usual, **options})


def topic(name: str) -> CreateTopic:
    return CreateTopic(UUID(bytes=name.encode().rjust(16, b"\0")), name, ((ONE,),))


def registration(start: int = 1) -> RegisterBroker:
    return RegisterBroker(ONE, UUID(int=start), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),), levels=SUPPORTED)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def finished(proposer: asyncio.Future[list[Image]]) -> bool:
    """Return whether the command was applied. A live process on a simulated disk answers within 100 iterations."""
    for _ in range(100):
        await asyncio.sleep(0)
    return proposer.done() and proposer.exception() is None


async def started(**options: int) -> QuorumFixture:
    quorum = QuorumFixture(**options)
    await quorum.voter.propose(registration())
    return quorum
