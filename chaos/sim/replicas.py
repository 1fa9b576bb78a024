"""A simulated cluster of replicas, with verbs for faults and continuous checks of the replication rules."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from cordwood.chaos.sim.counted import followers_are_as_counted, is_kept
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.chaos.sim.left_behind import LeftBehind
from cordwood.chaos.sim.loop import run
from cordwood.chaos.sim.reopened_logs import ReopenedLogs
from cordwood.chaos.sim.replication import NOW_MS, SYNC_MAX_S, Metadata, ReplicaBroker
from cordwood.chaos.sim.values import batch_of, values_between
from cordwood.chaos.sim.wires import Wires
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic, FenceBroker
from cordwood.cluster.metadata.image import CommandRefused, PartitionImage
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.log import Appended

TOPIC, TOPIC_ID = "t", UUID(int=7)
PARTITIONS_PATH = f"/data/topics/{TOPIC_ID}"
STAGED = ".new"
"""The suffix of a small file until it is synced."""
SESSION_S = 1.0
LOOK_S = 0.02
ACK_TIMEOUT_S = 3.0
RETRY_S = 0.05
SETTLED_S = 60.0
REREAD_SHARE = 0.01
PRODUCER = 77


class ReplicaCluster:
    """Brokers with one topic, on a running loop. Call `begin` first and `end` last."""

    def __init__(
        self, seed: int = 1, brokers: int = 3, partitions: int = 1, min_isr: int = 2, policy: str | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.ids = tuple(range(1, brokers + 1))
        self.partitions, self.min_isr = partitions, min_isr
        policies = () if policy is None else (("flush.policy", policy),)
        self._configs = (("min.insync.replicas", str(min_isr)), *policies)
        self.sync_max_s: tuple[float, ...] = (SYNC_MAX_S,)
        """Maximum sync durations, of which each start of a broker draws one."""
        self.wires = Wires(self.rng)
        self.metadata = Metadata(self.rng, self.ids)
        self.disks = {broker: SimulatedDisk(random.Random(seed * 100 + broker)) for broker in self.ids}
        self.running: dict[int, ReplicaBroker] = {}
        self.acked: dict[int, list[str]] = {partition: [] for partition in range(partitions)}
        self.committed: dict[int, dict[int, str]] = {partition: {} for partition in range(partitions)}
        self._seen: dict[tuple[ReplicaBroker, int], int] = {}
        self.batches: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        """The batches of `acked`, as they were sent."""
        self._shown: dict[int, int] = {}
        self._sequences = dict.fromkeys(range(partitions), 0)
        self._producer_epochs = dict.fromkeys(range(partitions), 0)
        self._heard: dict[int, float] = {}
        self._reopening, self._left_behind = ReopenedLogs(), LeftBehind()
        self._watch: asyncio.Task[None] | None = None

    async def begin(self) -> "ReplicaCluster":
        for broker in self.ids:
            self.start(broker)
            self.running[broker].unfence()
        assignments = tuple(self._assignment(partition) for partition in range(self.partitions))
        self.metadata.commit(CreateTopic(TOPIC_ID, TOPIC, assignments, self._configs))
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
        """Send a value as an idempotent producer, one at a time, until it is acknowledged."""
        sequence, self._sequences[partition] = self._sequences[partition], self._sequences[partition] + 1
        batch = self.numbered(value, partition, sequence)
        while not await self._send(batch, partition):
            await asyncio.sleep(RETRY_S)
        self.acked[partition].append(value)
        self.batches[partition].append(batch)

    def numbered(self, value: str, partition: int, sequence: int, epochs_ago: int = 0) -> bytes:
        """Return a batch of the partition's idempotent producer, or of a former epoch of that producer."""
        epoch = self._producer_epochs[partition] - epochs_ago
        return batch_of(value, PRODUCER, epoch, sequence)

    def replace_producer(self, partition: int) -> None:
        """Start a new epoch of the producer, with sequence numbers from 0."""
        self._producer_epochs[partition] += 1
        self._sequences[partition] = 0

    def sequence(self, partition: int) -> int:
        """Return the sequence number of the producer's next batch."""
        return self._sequences[partition]

    def try_append(self, broker: int, batch: bytes, partition: int = 0) -> Appended | None:
        """Append a batch with acks=1. Return None if the broker does not lead. Raises StorageError."""
        running = self.running.get(broker)
        if running is None:
            return None
        try:
            return running.replicas.led(TOPIC, partition).append(batch, NOW_MS, must_be_safe=False)
        except (PartitionRefused, Died):
            return None

    async def append_unacknowledged(self, broker: int, value: str, partition: int = 0) -> None:
        """Append a record to a leader's log with acks=1."""
        self.replica(broker, partition).append(batch_of(value), NOW_MS, must_be_safe=False)

    def cut_off(self, *brokers: int) -> None:
        """Cut brokers off from all others, and from the metadata."""
        for broker in brokers:
            self.metadata.cut_off.add(broker)
            for other in self.ids:
                if other not in brokers:
                    self.wires.cut(broker, other)
                    self.wires.cut(other, broker)

    def cut(self, here: int, there: int) -> None:
        """Cut replication from one broker to another, in this direction only."""
        self.wires.cut(here, there)

    def heal(self) -> None:
        self.wires.flips = 0
        self.wires.heal()
        self.metadata.heal()

    def die_soon(self, broker: int, changes: int) -> None:
        """Let the broker die at a later disk change, perhaps by a power loss."""
        self.disks[broker].faults.die_after(changes)

    def die_in_cut(self, broker: int, changes: int) -> None:
        """Let the broker die a few changes after the next sync of a staged file, as a truncation writes one."""
        self.disks[broker].faults.die_after_sync(STAGED, changes)

    async def kill(self, broker: int) -> None:
        """Kill the process. The page cache survives."""
        await self._end(broker)
        self.disks[broker].kill()

    async def power_cut(self, broker: int, keep: float | None = None) -> None:
        await self._end(broker)
        self.disks[broker].power_cut(keep)

    async def wipe(self, broker: int) -> None:
        """Replace the broker's disk with an empty one."""
        if broker in self.running:
            await self._end(broker)
        self._reopening.disk_is_gone(broker)
        self.disks[broker] = SimulatedDisk(random.Random(self.rng.random()))

    def start(self, broker: int) -> None:
        sync_max_s = self.rng.choice(self.sync_max_s)
        try:
            running = ReplicaBroker(broker, self.disks[broker], self.metadata, self.wires, self.rng, sync_max_s)
        except Died:
            # The broker died before any other broker knew of it.
            return
        self.running[broker] = running
        self.disks[broker].on_death = running.fall_silent
        self.disks[broker].on_sync = partial(self._left_behind.synced, running.disk)
        with contextlib.suppress(Died):
            self._reopening.open(running)
        self._heard[broker] = asyncio.get_running_loop().time()

    async def _end(self, broker: int) -> None:
        running = self.running.pop(broker)
        self._reopening.went_down(running)
        await running.die()

    async def peace(self) -> None:
        """End all faults, and start all brokers on working disks."""
        for broker in list(self.running):
            if any(replica.is_offline for replica in self.running[broker].replicas):
                await self.kill(broker)
        for broker in self.ids:
            self.disks[broker].faults.heal()
            if broker not in self.running:
                self.start(broker)
        self.heal()

    async def settled(self, producers: Sequence["asyncio.Future[None]"] = ()) -> None:
        """End all faults, and wait until producers are answered and all replicas are in sync and equal (rule 11)."""
        await self.peace()
        await self.until(lambda: all(one.done() for one in producers), "every producer is answered")
        await asyncio.gather(*producers)
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
        """Return whether every replica is in sync, so that one disk may be lost, and no other before it is back."""
        return all(self.isr(one) == set(map(int, self.image(one).replicas)) for one in range(self.partitions))

    def image(self, partition: int = 0) -> PartitionImage:
        found = self.metadata.newest.partition(TOPIC_ID, partition)
        assert found is not None
        return found

    def replica(self, broker: int, partition: int = 0) -> Partition:
        found = self.running[broker].replicas.get(TOPIC, partition)
        assert found is not None, f"broker {broker} holds partition {partition}"
        return found

    def values(self, broker: int, partition: int = 0, end: int | None = None) -> list[str]:
        """Return all values of the broker's log, or those below `end`."""
        log = self.replica(broker, partition).log
        return [value for _, value in values_between(log, log.log_start, log.log_end if end is None else end)]

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
            appended = replica.append(batch, NOW_MS)
            async with asyncio.timeout(ACK_TIMEOUT_S):
                await replica.leader.committed(appended.end_offset)
        except (PartitionRefused, StorageError, TimeoutError, Died):
            return False
        if self.running.get(leader) is not running:
            # The broker died in the meantime, and sent no answer.
            return False
        self._check_acknowledged(appended.end_offset, partition)
        return True

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for broker in [broker for broker, running in self.running.items() if running.is_silent]:
                await self._end(broker)
                if self.rng.random() < 0.5:
                    self.disks[broker].power_cut()
            self._play_controller()
            self._check()

    def _play_controller(self) -> None:
        now = asyncio.get_running_loop().time()
        for broker, image in list(self.metadata.newest.brokers.items()):
            running = self.running.get(broker)
            if running is not None and not running.is_silent and broker not in self.metadata.cut_off:
                self._heard[broker] = now
            is_late = now - self._heard.get(broker, now) > SESSION_S
            if is_late and not image.is_fenced:
                self._propose_fence(running, broker, image.epoch)
            elif running is not None and not is_late and image.is_fenced and running.is_fit(image):
                running.unfence()

    def _propose_fence(self, running: ReplicaBroker | None, broker: BrokerId, epoch: int) -> None:
        try:
            self.metadata.commit(FenceBroker(broker, epoch))
        except CommandRefused:
            assert running is not None, "only another incarnation can be in the way"

    def _check(self) -> None:
        """Check rules 1 to 5, as far as they are observable."""
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
            self._check_in_sync(image, partition)
            self._check_shown(image, partition)
        holders = [running for running in self.running.values() if not running.is_silent]
        wrong = list(followers_are_as_counted(holders, self.metadata.newest))
        assert not wrong, wrong
        left = list(self._left_behind.look(holders, self.metadata, asyncio.get_running_loop().time()))
        assert not left, left

    def _check_acknowledged(self, end: int, partition: int) -> None:
        """Check that enough replicas have an acknowledged batch. Brokers that do not run may have it."""
        have = [broker for broker in self.image(partition).replicas if self._ack_end(broker, partition, end) >= end]
        least = min(self.min_isr, len(self.image(partition).replicas))
        assert len(have) >= least, f"rule 5: acknowledged below {end} with {have} alone"

    def _check_in_sync(self, image: PartitionImage, partition: int) -> None:
        end = max(self.committed[partition], default=-1) + 1
        for member in image.isr:
            ack_end = self._ack_end(member, partition, end)
            assert ack_end >= end, f"rule 1: {end} is committed, broker {member} is in sync and has {ack_end}"

    def _ack_end(self, broker: int, partition: int, unknown: int) -> int:
        """Return the end that counts for acknowledgements: flushed, or in memory with `flush.policy=os`."""
        running = self.running.get(broker)
        replica = None if running is None else running.replicas.get(TOPIC, partition)
        return unknown if replica is None or replica.is_offline else replica.ack_end

    def _check_shown(self, image: PartitionImage, partition: int) -> None:
        """Check that the high watermark that clients get never goes back, even across leaders."""
        running = self.running.get(image.leader)
        replica = None if running is None else running.replicas.get(TOPIC, partition)
        if replica is None or not replica.leads_in(image.leader_epoch):
            return
        try:
            shown = replica.known_high_watermark()
        except PartitionRefused:
            return
        before = self._shown.get(partition, 0)
        assert shown >= before, f"promise 2: the watermark was {before}, and broker {image.leader} shows {shown}"
        self._shown[partition] = shown

    def _check_committed(self, running: ReplicaBroker, partition: int) -> None:
        replica = running.replicas.get(TOPIC, partition)
        if replica is None:
            return
        log = replica.log
        may_lose = not running.is_silent and not is_kept(running.disk, log)
        assert not may_lose, f"rule 1: broker {running.broker_id} calls {log.flushed_end} flushed, and may lose it"
        assert log.flushed_end <= log.log_end, f"rule 1: flushed to {log.flushed_end}, and it ends at {log.log_end}"
        # Some checks reread the log from its start.
        seen = 0 if self.rng.random() < REREAD_SHARE else self._seen.get((running, partition), 0)
        start = max(seen, replica.log.log_start)
        known = self.committed[partition]
        try:
            readable = values_between(replica.log, start, replica.high_watermark)
        except DamagedLog:
            # A refused read returns no data.
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


def run_scenario(
    scenario: Callable[[ReplicaCluster], Coroutine[Any, Any, None]], seed: int = 1, **options: Any
) -> float:
    """Run a scenario on a new cluster in simulated time. Return its simulated seconds."""

    async def reported() -> float:
        cluster = await ReplicaCluster(seed, **options).begin()
        await scenario(cluster)
        await cluster.end()
        return asyncio.get_running_loop().time()

    return run(reported())
