"""Brokers as cluster members, each with its controller, over one metadata log in memory and in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from quorum_in_memory import MetadataLog

from cordwood.cluster.broker.controller_runner import ControllerRunner
from cordwood.cluster.broker.lifecycle import Lifecycle
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic, Endpoint
from cordwood.cluster.metadata.image import PartitionImage
from cordwood.cluster.resources.turns import Turns

TOPIC = UUID(int=1)
SESSION_S = 1.0


class Member:
    """One running broker."""

    def __init__(self, log: MetadataLog, refusing: set[int], broker: int, incarnation: int, **settings: int) -> None:
        self.broker, self.failures = broker, list[str]()
        self.quorum = log.voter(broker)
        known = Settings(node_id=broker, **{"broker_session_timeout_ms": int(SESSION_S * 1000), **settings})

        async def is_refused(other: BrokerId) -> bool:
            return other in refusing

        self.controlling = ControllerRunner(self.quorum, known, is_refused, lambda: 0)
        self.lifecycle = Lifecycle(self.quorum, known, UUID(int=incarnation), self.failures.append)
        # Without auto.balance=all no broker is asked for its directories.
        self.controlling.start(cast(Any, None), Turns(asyncio.get_running_loop().time))

    async def join(self) -> "Member":
        await self.lifecycle.register((Endpoint("PLAINTEXT", f"host-{self.broker}", 9092),), ("disk",))
        self.lifecycle.start()
        await self.lifecycle.unfenced()
        return self

    async def end(self) -> None:
        """Kill the process."""
        self.lifecycle.close()
        await self.controlling.close()
        self.quorum.is_cut_off = True


class MembersFixture:
    """A cluster of registered brokers. The first is the active controller."""

    def __init__(self) -> None:
        self.log = MetadataLog()
        self.refusing: set[int] = set()
        """Brokers whose hosts refuse connections."""
        self.members: dict[int, Member] = {}
        self._starts = 0

    def run(self, broker: int, **settings: int) -> Member:
        """Start a broker's process, without registration."""
        self._starts += 1
        self.members[broker] = Member(self.log, self.refusing, broker, self._starts, **settings)
        return self.members[broker]

    async def start(self, *brokers: int, **settings: int) -> "MembersFixture":
        members = [self.run(broker, **settings) for broker in brokers]
        if self.log.leader is None:
            self.log.elect(brokers[0])
        await asyncio.gather(*(member.join() for member in members))
        return self

    def create(self, *replicas: int, min_isr: int = 1) -> None:
        assignment = tuple(map(BrokerId, replicas))
        self.log.apply(CreateTopic(TOPIC, "flights", (assignment,), (("min.insync.replicas", str(min_isr)),)))

    @property
    def partition(self) -> PartitionImage:
        return self.log.image.topics_by_id[TOPIC].partitions[0]

    def alive(self) -> set[int]:
        return {broker.id for broker in self.log.image.brokers.values() if broker.is_alive}

    async def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Return the seconds until the condition held. Raises AssertionError after `within_s`."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not condition():
            assert loop.time() - begun <= within_s, "waited in vain"
            await asyncio.sleep(0.005)
        return loop.time() - begun

    async def close(self) -> None:
        for member in self.members.values():
            await member.end()
