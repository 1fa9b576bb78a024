"""A simulated object store that all brokers of a run share, with the faults of a real one.

| fault | how it is made | what must survive |
|---|---|---|
| slow | each request takes longer | other work of the brokers; uploads go on |
| refusing (503) | a request fails at once, and changes nothing | retries; no step is left out |
| lost answers | a request fails after it has changed the store | a put that has succeeded is no error, and no orphan |
| lists that lag | a list lacks the newest objects | nothing is taken for missing because a list lacks it |
| stopped | every request fails until the store is back | produce goes on; the archive catches up |
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from cordwood.archive.store import ObjectExists, ObjectMissing, Pace, StoredObject, StoreUnavailable
from cordwood.chaos.sim.disk import SimulatedDisk

SLOW_FACTOR = 20
LIST_LAG_S = 2.0
"""The age from which on a list has an object while lists lag."""
PART_BYTES = 1 << 20


class SimulatedObjects:
    """The objects of one run, and the faults of the store. Time is the loop's."""

    def __init__(self, rng: random.Random, now: Callable[[], float], latency_s: tuple[float, float]) -> None:
        self._rng, self._now, self._latency_s = rng, now, latency_s
        self.contents: dict[str, bytes] = {}
        self.created_s: dict[str, float] = {}
        self.is_stopped = False
        self.is_slow = False
        self.lists_lag = False
        self.refusals = 0.0
        """The share of requests that are refused."""
        self.lost_answers = 0.0
        """The share of requests whose answer is lost after they have changed the store."""
        self.on_created: Callable[[str], None] = _nothing
        self.on_deleted: Callable[[str], None] = _nothing

    def heal(self) -> None:
        """End all faults."""
        self.is_stopped = self.is_slow = self.lists_lag = False
        self.refusals = self.lost_answers = 0.0

    def of_host(self, disk: Callable[[], SimulatedDisk]) -> "SimulatedStore":
        """Return the store as one host's broker sees it. `disk` returns the host's disk."""
        return SimulatedStore(self, disk)

    async def request(self) -> None:
        """Wait as long as a request takes. Raises StoreUnavailable if it does not reach the store."""
        delay_s = self._rng.uniform(*self._latency_s) * (SLOW_FACTOR if self.is_slow else 1)
        await asyncio.sleep(delay_s)
        if self.is_stopped:
            raise StoreUnavailable("the simulated store is stopped")
        if self._rng.random() < self.refusals:
            raise StoreUnavailable("503 SlowDown of the simulated store")

    def answer(self) -> None:
        """Raise StoreUnavailable if the answer of a request is lost."""
        if self._rng.random() < self.lost_answers:
            raise StoreUnavailable("the simulated store's answer is lost")

    def create(self, name: str, content: bytes) -> None:
        if name in self.contents:
            raise ObjectExists(f"there is an object named {name}")
        self.contents[name] = content
        self.created_s[name] = self._now()
        self.on_created(name)

    def delete(self, name: str) -> None:
        if self.contents.pop(name, None) is not None:
            del self.created_s[name]
            self.on_deleted(name)

    def listed(self, prefix: str, after: str) -> list[StoredObject]:
        newest_s = self._now() - (LIST_LAG_S if self.lists_lag else 0.0)
        return [
            StoredObject(name, len(self.contents[name]), int(self.created_s[name] * 1000))
            for name in sorted(self.contents)
            if name.startswith(prefix) and name > after and self.created_s[name] <= newest_s
        ]


class SimulatedStore:
    """An `ObjectStore` of one host."""

    def __init__(self, objects: SimulatedObjects, disk: Callable[[], SimulatedDisk]) -> None:
        self._objects, self._disk = objects, disk

    async def put(self, name: str, content: bytes | memoryview) -> None:
        """Create an object. A retry that finds the same content counts as a success, as with a real store."""
        objects = self._objects
        await objects.request()
        if objects.contents.get(name) != content:
            objects.create(name, bytes(content))
        objects.answer()

    async def put_file(self, name: str, path: str, size: int, pace: Pace | None = None) -> None:
        """Create an object of a file of the host's disk, read in parts while the broker goes on."""
        content = b""
        while len(content) < size:
            count = min(PART_BYTES, size - len(content))
            if pace is not None:
                await pace(count)
            await self._objects.request()
            part = self._disk().peek(path, count, len(content))
            if len(part) < count:
                raise OSError(f"{path} ends too soon")
            content += part
        await self.put(name, content)

    async def get(self, name: str) -> bytes:
        return await self.get_range(name, 0, 1 << 62)

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        await self._objects.request()
        content = self._objects.contents.get(name)
        if content is None:
            raise ObjectMissing(f"there is no object named {name}")
        self._objects.answer()
        return content[start:end]

    async def list(self, prefix: str, after: str = "") -> Sequence[StoredObject]:
        await self._objects.request()
        found = self._objects.listed(prefix, after)
        self._objects.answer()
        return found

    async def delete(self, names: Sequence[str]) -> None:
        await self._objects.request()
        for name in names:
            self._objects.delete(name)
        self._objects.answer()


def _nothing(_name: str) -> None:
    """Ignore the object."""
