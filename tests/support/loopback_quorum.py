"""A quorum of three voters over real loopback sockets, a real disk and a real clock."""

import asyncio
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from broker_fixture import free_port

from cordwood.chaos.sim.quorum import setting
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.quorum import Address, QuorumOptions, QuorumTls
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.raft.observer import Observer
from cordwood.cluster.metadata.raft.voter import RaftQuorum
from cordwood.storage.real_disk import RealDisk

VOTERS = (1, 2, 3)


class Loopback:
    """Three voters, each with a directory of its own."""

    def __init__(self, directory: Path, executor: ThreadPoolExecutor) -> None:
        self.directory, self.executor = directory, executor
        self.tls: dict[int, QuorumTls] = {}
        """TLS of each broker that has it."""
        self.addresses = {BrokerId(voter): ("127.0.0.1", free_port()) for voter in VOTERS}
        self.quorums: dict[int, RaftQuorum] = {}
        self.observer: Observer | None = None
        self.failures: list[object] = []

    async def start(self, *voters: int) -> None:
        for voter in voters:
            directory, options = self.metadata(voter).as_posix(), self._options(voter)
            quorum = self.quorums[voter] = RaftQuorum.open(RealDisk(0), directory, options)
            await quorum.start()

    async def observe(self) -> Observer:
        self.observer = Observer(self._options(7))
        await self.observer.start()
        await self.observer.formed()
        return self.observer

    async def stop(self, *voters: int) -> None:
        for voter in voters:
            await self.quorums.pop(voter).close()

    async def wipe(self, *voters: int) -> None:
        await self.stop(*voters)
        for voter in voters:
            shutil.rmtree(self.metadata(voter))
        await self.start(*voters)

    async def formed(self) -> None:
        await asyncio.gather(*(quorum.formed() for quorum in self.quorums.values()))

    async def put(self, voter: int, key: str) -> None:
        await self.quorums[voter].propose(setting(key))

    def keys(self, voter: int) -> list[str]:
        return list(self.quorums[voter].image.configs_of_all_brokers)

    def standing(self, voter: int) -> Standing:
        return self.quorums[voter]._standings.own

    def metadata(self, voter: int) -> Path:
        return self.directory / str(voter) / "metadata"

    def address(self, voter: int) -> Address:
        return self.addresses[BrokerId(voter)]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        if self.observer is not None:
            await self.observer.close()
        await self.stop(*self.quorums)

    def _options(self, broker: int) -> QuorumOptions:
        return QuorumOptions(
            node_id=BrokerId(broker),
            rng=random.Random(),
            run_blocking=self._run_blocking,
            on_failure=self.failures.append,
            on_refused=self.failures.append,
            voters=self.addresses,
            bind=self.addresses.get(BrokerId(broker), ("", 0)),
            tls=self.tls.get(broker),
        )

    async def _run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)
