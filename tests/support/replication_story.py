"""A small cluster in one process, told what to do in verbs, and watched: what was committed once stays what it is."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import virtual_time

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.replication import NOW_MS, Metadata, ReplicaBroker
from cordwood.chaos.sim.wires import Wires
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.metadata.image import CommandRefused, PartitionImage
from cordwood.replication.partition import Partition, PartitionRefused
from cordwood.storage.batch import split
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.records import Record, decode, encode

TOPIC, TOPIC_ID = "t", UUID(int=7)
SESSION_S = 1.0
LOOK_S = 0.02
ACK_TIMEOUT_S = 3.0
RETRY_S = 0.05
SETTLED_S = 60.0
PRODUCER = 77


class Cluster:
    """Brokers with one topic. Made on a running loop; `begin` before anything else, and `end` after."""

    def __init__(self, seed: int = 1, brokers: int = 3, partitions: int = 1, min_isr: int = 2) -> None:
        self.rng = random.Random(seed)
        self.ids = tuple(range(1, brokers + 1))
        self.partitions, self.min_isr = partitions, min_isr
        self.wires = Wires(self.rng)
        self.metadata = Metadata(self.rng, self.ids)
        self.disks = {broker: SimulatedDisk(random.Random(seed * 100 + broker)) for broker in self.ids}
        self.running: dict[int, ReplicaBroker] = {}
        self.acked: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
        self.committed: dict[int, dict[int, str]] = {partition: {} for partition in range(partitions)}
        self._seen: dict[tuple[ReplicaBroker, int], int] = {}
        self._sequences = dict.fromkeys(range(partitions), 0)
        self._heard: dict[int, float] = {}
        self._watch: asyncio.Task[None] | None = None

    async def begin(self) -> "Cluster":
        for broker in self.ids:
            self.start(broker)
            self.running[broker].unfence()
        assignments = tuple(self._assignment(partition) for partition in range(self.partitions))
        self.metadata.commit(CreateTopic(TOPIC_ID, TOPIC, assignments, (("min.insync.replicas", str(self.min_isr)),)))
        self._watch = asyncio.get_running_loop().create_task(self._look_for_ever())
        return self

    async def end(self) -> None:
        assert self._watch is not None
        if self._watch.done():
            self._watch.result()
        self._watch.cancel()
        for broker in list(self.running):
            await self.kill(broker)

    async def produce(self, value: str, partition: int = 0) -> None:
        """Have one value acknowledged, however often it has to be sent: an idempotent producer, one at a time."""
        sequence, self._sequences[partition] = self._sequences[partition], self._sequences[partition] + 1
        batch = encode(
            [Record(0, NOW_MS, b"k", value.encode())], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
        )
        while not await self._send(batch, partition):
            await asyncio.sleep(RETRY_S)
        self.acked[partition].append(value)

    async def append_unacknowledged(self, broker: int, value: str, partition: int = 0) -> None:
        """A record in a leader's log that nobody was told is safe (acks=1)."""
        batch = encode([Record(0, NOW_MS, b"k", value.encode())])
        self.replica(broker, partition).append(batch, NOW_MS, must_be_safe=False)

    def cut_off(self, *brokers: int) -> None:
        """From all others, and from the metadata."""
        for broker in brokers:
            self.metadata.cut_off.add(broker)
            for other in self.ids:
                if other not in brokers:
                    self.wires.cut(broker, other)
                    self.wires.cut(other, broker)

    def cut(self, here: int, there: int) -> None:
        """One way only, and only what replicas say to each other."""
        self.wires.cut(here, there)

    def heal(self) -> None:
        self.wires.heal()
        self.metadata.heal()

    async def kill(self, broker: int) -> None:
        """SIGKILL: what is in memory of the operating system stays."""
        await self.running.pop(broker).die()
        self.disks[broker].kill()

    async def power_cut(self, broker: int) -> None:
        await self.running.pop(broker).die()
        self.disks[broker].power_cut()

    async def wipe(self, broker: int) -> None:
        """The broker comes back with an empty disk."""
        if broker in self.running:
            await self.running.pop(broker).die()
        self.disks[broker] = SimulatedDisk(random.Random(self.rng.random()))

    def start(self, broker: int) -> None:
        running = ReplicaBroker(broker, self.disks[broker], self.metadata, self.wires, self.rng)
        self.running[broker] = running
        running.register()
        self._heard[broker] = asyncio.get_running_loop().time()

    async def settled(self) -> None:
        """Everybody is back, in sync and equal (rule 11)."""
        for broker in self.ids:
            if broker not in self.running:
                self.start(broker)
        self.heal()
        await self.until(self._is_settled, "everybody is in sync and equal")

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = SETTLED_S) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, (
                f"waited {seconds} s in vain until {what}: {self.state()}"
            )
            self._must_be_well()
            await asyncio.sleep(LOOK_S)

    def leader(self, partition: int = 0) -> int:
        return int(self.image(partition).leader)

    def isr(self, partition: int = 0) -> set[int]:
        return set(map(int, self.image(partition).isr))

    def is_redundant(self) -> bool:
        """Whether every partition has everybody in sync: one disk may be lost, and then no other before it is back."""
        return all(self.isr(one) == set(map(int, self.image(one).replicas)) for one in range(self.partitions))

    def image(self, partition: int = 0) -> PartitionImage:
        found = self.metadata.newest.partition(TOPIC_ID, partition)
        assert found is not None
        return found

    def replica(self, broker: int, partition: int = 0) -> Partition:
        found = self.running[broker].replicas.get(TOPIC, partition)
        assert found is not None
        return found

    def values(self, broker: int, partition: int = 0, end: int | None = None) -> list[str]:
        """All that the broker's log holds, or what is below `end`."""
        log = self.replica(broker, partition).log
        return [value for _, value in _read(log, log.log_start, log.log_end if end is None else end)]

    def state(self) -> str:
        rows = []
        for partition in range(self.partitions):
            image = self.image(partition)
            ends = {
                broker: (replica.log.log_end, replica.log.flushed_end, replica.high_watermark, replica.leader_epoch)
                for broker, running in self.running.items()
                if (replica := running.replicas.get(TOPIC, partition)) is not None
            }
            rows.append(
                f"{partition}: leader {image.leader} epoch {image.leader_epoch} isr {image.isr} elr {image.elr} {ends}"
            )
        return "; ".join(rows)

    def _assignment(self, partition: int) -> tuple[BrokerId, ...]:
        turned = self.ids[partition % len(self.ids) :] + self.ids[: partition % len(self.ids)]
        return tuple(map(BrokerId, turned[:3]))

    async def _send(self, batch: bytes, partition: int) -> bool:
        leader = self.rng.choice([self.leader(partition), *self.ids])
        running = self.running.get(leader)
        if running is None:
            return False
        try:
            replica = running.replicas.led(TOPIC, partition)
            async with asyncio.timeout(ACK_TIMEOUT_S):
                await replica.append_committed(batch, NOW_MS)
        except (PartitionRefused, StorageError, TimeoutError):
            return False
        # Whoever died in the meantime has answered nobody.
        return self.running.get(leader) is running

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._play_controller()
            self._check()

    def _play_controller(self) -> None:
        now = asyncio.get_running_loop().time()
        for broker, image in list(self.metadata.newest.brokers.items()):
            running = self.running.get(broker)
            if running is not None and broker not in self.metadata.cut_off:
                self._heard[broker] = now
            is_late = now - self._heard.get(broker, now) > SESSION_S
            if is_late and not image.is_fenced:
                self._propose_fence(running, broker, image.epoch)
            elif running is not None and not is_late and image.is_fenced and image.incarnation == running.incarnation:
                running.unfence()

    def _propose_fence(self, running: ReplicaBroker | None, broker: BrokerId, epoch: int) -> None:
        from cordwood.cluster.metadata.commands import FenceBroker

        try:
            self.metadata.commit(FenceBroker(broker, epoch))
        except CommandRefused:
            assert running is not None, "only another incarnation can be in the way"

    def _check(self) -> None:
        """Rules 2 and 3, as far as they can be seen from outside."""
        for partition in range(self.partitions):
            image = self.image(partition)
            assert image.leader == -1 or image.leader in image.isr, "rule 3: the leader is in the ISR"
            leaders = [
                broker
                for broker, running in self.running.items()
                if (held := running.replicas.get(TOPIC, partition)) is not None
                and held.is_leader
                and held.leader_epoch == image.leader_epoch
            ]
            assert leaders in ([], [image.leader]), "rule 3: at most one leader per epoch"
            for running in self.running.values():
                self._check_committed(running, partition)

    def _check_committed(self, running: ReplicaBroker, partition: int) -> None:
        replica = running.replicas.get(TOPIC, partition)
        if replica is None:
            return
        start = max(self._seen.get((running, partition), 0), replica.log.log_start)
        known = self.committed[partition]
        try:
            readable = _read(replica.log, start, replica.high_watermark)
        except DamagedLog:
            # A read that is refused shows nobody anything.
            return
        for offset, value in readable:
            if offset >= start:
                assert known.setdefault(offset, value) == value, (
                    f"promise 2: offset {offset} was {known[offset]} and is {value} on broker {running.broker_id}"
                )
        self._seen[running, partition] = max(start, replica.high_watermark)

    def _is_settled(self) -> bool:
        for partition in range(self.partitions):
            replicas = set(map(int, self.image(partition).replicas))
            if self.isr(partition) != replicas or self.leader(partition) not in replicas:
                return False
            held = [self.replica(broker, partition) for broker in replicas]
            ends = {(replica.log.log_end, replica.log.flushed_end, replica.high_watermark) for replica in held}
            if len(ends) != 1 or len(set(ends.pop())) != 1:
                return False
        return True

    def _must_be_well(self) -> None:
        assert self._watch is not None
        if self._watch.done():
            self._watch.result()


def tell(story: Callable[[Cluster], Coroutine[Any, Any, None]], seed: int = 1, **options: int) -> None:
    """Run a story on a cluster of its own, in virtual time."""

    async def told() -> None:
        cluster = await Cluster(seed, **options).begin()
        await story(cluster)
        await cluster.end()

    virtual_time.run(told())


def _read(log: Any, start: int, end: int) -> list[tuple[int, str]]:
    found = []
    offset = start
    while offset < end:
        data = log.read(offset, 1 << 20, end)
        if not data:
            break
        for batch in split(data):
            for record in decode(batch):
                found.append((record.offset, record.value.decode()))
                offset = record.offset + 1
    return [(at, value) for at, value in found if start <= at < end]
