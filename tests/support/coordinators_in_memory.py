"""Coordinators of one internal topic in memory, by broker, of which the clients know the leader."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from offsets_in_memory import FIRST, OffsetsInMemory

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.metadata.image import Image

DEADLINE_S = 3600.0
LOOK_S = 0.001


class Coordinator(Protocol):
    """What groups and transactions have in common."""

    def start(self) -> None: ...

    async def close(self) -> None: ...

    def on_metadata_change(self, old: Image, new: Image) -> None: ...


CoordinatorT = TypeVar("CoordinatorT", bound=Coordinator)


class CoordinatorsInMemory(ABC, Generic[CoordinatorT]):
    """The coordinators; needs a running loop. `restart` keeps only what was appended."""

    key: str
    """The group or the transactional id of the clients."""

    def __init__(self, topic: OffsetsInMemory, brokers: int) -> None:
        self.topic, self.leader = topic, FIRST
        self._loop = asyncio.get_running_loop()
        self.coordinators: dict[int, CoordinatorT] = {}
        for broker in range(FIRST, FIRST + brokers):
            self.open(broker)

    @property
    def coordinator(self) -> CoordinatorT:
        """The coordinator that the clients have found."""
        return self.coordinators[self.leader]

    @property
    def partition(self) -> int:
        return partition_of(self.key, self.topic.partition_count)

    def wall_clock(self) -> int:
        return 1_700_000_000_000 + round(self._loop.time() * 1000)

    def open(self, broker: int = FIRST) -> None:
        self.coordinators[broker] = self.made(broker)
        self.coordinators[broker].start()

    @abstractmethod
    def made(self, broker: int) -> CoordinatorT:
        """Return a coordinator of a broker, before its start."""

    @abstractmethod
    async def loaded(self) -> None:
        """Wait until the leader has loaded its partition."""

    async def restart(self) -> None:
        await self.coordinator.close()
        self.open(self.leader)
        await self.loaded()

    def elect(self, broker: int, **changes: int) -> None:
        """Elect another leader of the partition of `key`. All brokers learn of it, and the clients find the leader."""
        self.topic.elect(self.partition, broker, **changes)
        self.leader = broker
        self.tell_all()

    def tell_all(self) -> None:
        """Notify every coordinator of a metadata change."""
        for coordinator in self.coordinators.values():
            coordinator.on_metadata_change(Image(1), Image(2))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = self._loop.time() + DEADLINE_S
        while not is_so():
            assert self._loop.time() < deadline, "it never came to be"
            await asyncio.sleep(LOOK_S)
