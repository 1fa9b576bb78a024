"""A random scenario for replicas: brokers crash, disks lose data, links drop, producers send invalid batches."""

import asyncio
import contextlib
import math
import random

from cordwood.chaos.sim.replicas import PARTITIONS_PATH, SESSION_S, ReplicaCluster, run_scenario
from cordwood.chaos.sim.replication import LAG_MAX_S
from cordwood.chaos.sim.strict import strictly
from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.metadata.commands import Election, ElectLeaders
from cordwood.cluster.repairs.damage import DamageState
from cordwood.storage.batch import CRC_COVERS_FROM
from cordwood.storage.errors import DiskFailed, DiskFull, StorageError

REPEATS = 5
"""The number of an idempotent producer's last batches that may be sent again."""
HURT_S = 25.0
"""The time in which damage is found and repaired. Only then is another disk damaged."""
FAULTS_S = 30.0
ALONE_S = (2.0, 13.0)
"""Durations of a leader's isolation. The last one is long enough for a checkpoint."""
BEHIND_S = LAG_MAX_S + 1.0
"""The time without contact after which a replica is out of sync."""
SYNCS_MAX_S = (0.01, 0.05, 0.5)
LATE_S = (0.5, 4.0)
"""Maximum delays of metadata changes."""
HAPPENINGS = ("down", "dying", "hurt", "network", "metadata", "all down", "elect", "diverge")


def run_replica_scenario(seed: int, seconds: float = FAULTS_S) -> float:
    """Run faults, then recovery. Everything acknowledged is on every replica's disk, once and in order.

    Returns the simulated seconds. Raises ScenarioFailed with the first failure as its cause, or AssertionError.
    """
    rng = random.Random(seed)
    return run_scenario(
        lambda cluster: strictly(_scenario(cluster, seconds)), seed, brokers=rng.choice((3, 3, 4)), partitions=3
    )


async def _scenario(cluster: ReplicaCluster, seconds: float) -> None:
    fault_injector = ReplicaFaultInjector(cluster)
    cluster.sync_max_s = SYNCS_MAX_S
    stopping = asyncio.Event()
    producers = [asyncio.ensure_future(fault_injector.produce(one, stopping)) for one in range(cluster.partitions)]
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(cluster.rng.uniform(0.05, fault_injector.pause_max_s))
        await fault_injector.step()
    stopping.set()
    await cluster.settled(producers)
    await fault_injector.is_healed()
    await cluster.settled()
    for partition in range(cluster.partitions):
        fault_injector.check(partition)
    assert any(cluster.acked.values()), "the story is about nothing otherwise"


class ReplicaFaultInjector:
    """Random faults: at most one broker down and one disk damaged at a time, and any number of brokers cut off."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster, self.rng = cluster, cluster.rng
        self.pause_max_s = self.rng.choice((1.0, 2.0, 6.0))
        # Each seed has its own mix: a fault that always happens hides bugs that only its absence shows.
        self._mix = [*self.rng.sample(HAPPENINGS, self.rng.randrange(2, len(HAPPENINGS))), "restart"]
        self._hurt_until = -math.inf
        self._hurt_ever: set[int] = set()
        self._written = 0

    async def produce(self, partition: int, stopping: asyncio.Event) -> None:
        """Produce values one by one, with invalid and duplicate batches in between."""
        cluster, number = self.cluster, 0
        while not stopping.is_set():
            await cluster.produce(f"{partition}-{number}", partition)
            number += 1
            if self.rng.random() < 0.3:
                self._send_badly(partition)
            if self.rng.random() < 0.05:
                cluster.replace_producer(partition)
            await asyncio.sleep(self.rng.uniform(0, 0.1))

    def _send_badly(self, partition: int) -> None:
        """Send an invalid, duplicate or acks=1 batch to any broker. A deposed leader may append it."""
        cluster = self.cluster
        broker = self.rng.choice([cluster.leader(partition), *cluster.ids])
        sequence = cluster.sequence(partition)
        match self.rng.choice(["again", "again", "gap", "replaced", "spoilt", "loose", "loose"]):
            case "again" if sequence:
                batch = self.rng.choice(cluster.batches[partition][-min(REPEATS, sequence) :])
                self._must_recognise(broker, batch, partition)
            case "gap" if sequence:
                self._must_refuse(broker, cluster.numbered("gap", partition, sequence + 3), partition, "rule 9: a gap")
            case "replaced" if sequence:
                batch = cluster.numbered("replaced", partition, 0, epochs_ago=1)
                self._must_refuse(broker, batch, partition, "rule 9: of a producer that was replaced")
            case "spoilt":
                spoilt = bytearray(batch_of("spoilt"))
                spoilt[self.rng.randrange(CRC_COVERS_FROM, len(spoilt))] ^= 1 << self.rng.randrange(8)
                self._must_refuse(broker, bytes(spoilt), partition, "promise 4: a corrupt batch")
            case _:
                self._send_loose(broker, partition)

    def _send_loose(self, broker: int, partition: int) -> None:
        """Append a batch without a producer id and without acknowledgement."""
        self._written += 1
        with contextlib.suppress(StorageError):
            self.cluster.try_append(broker, batch_of(f"loose-{self._written}"), partition)

    def _must_refuse(self, broker: int, batch: bytes, partition: int, what: str) -> None:
        with contextlib.suppress(StorageError):
            appended = self.cluster.try_append(broker, batch, partition)
            assert appended is None or self.cluster.leader(partition) != broker, what

    def _must_recognise(self, broker: int, batch: bytes, partition: int) -> None:
        """Check that the leader recognises an acknowledged batch as a duplicate."""
        try:
            appended = self.cluster.try_append(broker, batch, partition)
        except (DiskFull, DiskFailed):
            return
        except StorageError:
            assert self.cluster.leader(partition) != broker, "rule 9: sent again, and not recognised"
            return
        if appended is not None and self.cluster.leader(partition) == broker:
            assert appended.is_duplicate, "rule 9: sent again, and appended again"

    async def step(self) -> None:
        """Apply one random fault or repair."""
        cluster, rng = self.cluster, self.rng
        victim = rng.choice([cluster.leader(rng.randrange(cluster.partitions)), *cluster.ids])
        down = [broker for broker in cluster.ids if broker not in cluster.running]
        match rng.choice(self._mix):
            case "down" if victim in cluster.running and not down:
                await rng.choice([cluster.kill, cluster.power_cut])(victim)
            case "dying" if victim in cluster.running and not down:
                cluster.die_soon(victim, rng.randrange(30))
            case "hurt" if victim in cluster.running and not down and self._may_hurt():
                await self._hurt(victim)
            case "network":
                self._hurt_network(victim)
            case "metadata":
                await self._delay_metadata(None if down else victim)
            case "all down":
                await self._power_cut_all()
            case "elect":
                self._elect_preferred()
            case "diverge" if not down:
                await rng.choice((self._diverge, self._strand))()
            case _:
                for broker in down:
                    cluster.start(broker)

    def _hurt_network(self, victim: int) -> None:
        cluster, rng = self.cluster, self.rng
        match rng.choice(["cut", "one way", "noise", "heal"]):
            case "cut":
                cluster.cut_off(victim)
            case "one way":
                cluster.cut(*rng.sample(cluster.ids, 2))
            case "noise":
                cluster.wires.flips = rng.choice((1, 3))
            case _:
                cluster.heal()

    async def _diverge(self) -> None:
        """Isolate a leader with records that no other replica gets, and perhaps kill it during the truncation."""
        cluster, rng, partition = self.cluster, self.rng, self.rng.randrange(self.cluster.partitions)
        leader = cluster.leader(partition)
        cluster.cut_off(leader)
        for _ in range(rng.randrange(1, 40)):
            self._send_loose(leader, partition)
        await asyncio.sleep(rng.choice(ALONE_S))
        # One more batch, which is not flushed yet when the truncation begins.
        self._send_loose(leader, partition)
        cluster.heal()
        if leader in cluster.running and rng.random() < 0.7:
            rng.choice((cluster.die_soon, cluster.die_in_cut))(leader, rng.randrange(15))

    async def _delay_metadata(self, victim: int | None) -> None:
        """Delay the metadata, perhaps with restarts, so that ISR changes name an old incarnation of a broker."""
        cluster, rng = self.cluster, self.rng
        cluster.metadata.lag_max_s = rng.choice(LATE_S)
        if victim is not None and victim in cluster.running and rng.random() < 0.5:
            await cluster.kill(victim)
            await asyncio.sleep(2 * SESSION_S)
            cluster.start(victim)
            await asyncio.sleep(rng.uniform(1.0, 4.0))
            if victim in cluster.running:
                await cluster.kill(victim)
                cluster.start(victim)

    async def _strand(self) -> None:
        """Let one replica lag, perhaps as one of the last two in sync, and then cut off all others."""
        cluster, rng, partition = self.cluster, self.rng, self.rng.randrange(self.cluster.partitions)
        leader = cluster.leader(partition)
        near, far = rng.sample([one for one in cluster.image(partition).replicas if one != leader], 2)
        cluster.heal()
        if rng.random() < 0.5:
            cluster.cut_off(near)
        for is_near_back in (False, True):
            if is_near_back:
                cluster.heal()
            for other in (leader, near):
                cluster.cut(other, far)
                cluster.cut(far, other)
            await asyncio.sleep(BEHIND_S)
        cluster.cut_off(leader, near)
        await asyncio.sleep(rng.uniform(1.0, 3.0) * SESSION_S)
        if rng.random() < 0.7:
            cluster.heal()

    def _may_hurt(self) -> bool:
        is_over = asyncio.get_running_loop().time() > self._hurt_until
        return is_over and self.cluster.is_redundant() and not self._has_damage()

    def _has_damage(self) -> bool:
        brokers = self.cluster.running.values()
        return any(place.state is not DamageState.REPAIRED for broker in brokers for place in broker.damage.places())

    async def _hurt(self, victim: int) -> None:
        """Lose data on one disk."""
        self._hurt_until = asyncio.get_running_loop().time() + HURT_S
        self._hurt_ever.add(victim)
        match self.rng.choice(["wipe", "wipe", "flip", "flip", "flip", "lose", "lose", "sync"]):
            case "wipe" if self.rng.random() < 0.5:
                await self.cluster.wipe(victim)
            case "wipe":
                await self._wipe_in_the_dark(victim)
            case "flip":
                self._flip(victim)
                if self.rng.random() < 0.5:
                    # Damage found on opening a log takes another path than damage found in use.
                    await self.cluster.kill(victim)
            case "lose":
                self._lose(victim)
                if self.rng.random() < 0.5:
                    await self.cluster.kill(victim)
            case _:
                self.cluster.disks[victim].faults.fail_next_sync(PARTITIONS_PATH)

    async def _wipe_in_the_dark(self, victim: int) -> None:
        """Cut the power of all brokers, replace one disk, and restart the brokers in random order."""
        cluster, rng = self.cluster, self.rng
        for broker in list(cluster.running):
            await cluster.power_cut(broker)
        await cluster.wipe(victim)
        for broker in rng.sample(cluster.ids, len(cluster.ids)):
            cluster.start(broker)
            await asyncio.sleep(rng.choice((0.0, 0.5)))

    async def is_healed(self) -> None:
        """Wait until late damage is found and repaired. A broker that was cut off repairs once it sees others again."""
        await asyncio.sleep(max(self._hurt_until - asyncio.get_running_loop().time(), 0.0))
        await self.cluster.until(lambda: not self._has_damage(), "all damage is repaired")

    def _flip(self, victim: int) -> None:
        disk = self.cluster.disks[victim]
        files = [path for path in disk.files() if path.startswith("/data/") and disk.content(path).strip(b"\0")]
        if self.rng.random() < 0.5:
            files = [path for path in files if path.endswith(".log")] or files
        path = self.rng.choice(files)
        if path.endswith(("/id", ".new")):
            return
        disk.flip(path, self.rng.randrange(len(disk.content(path).rstrip(b"\0"))), self.rng.randrange(8))

    def _lose(self, victim: int) -> None:
        """Lose, shorten or zero a closed segment, with or without its index."""
        disk, rng = self.cluster.disks[victim], self.rng
        logs = [held.log for held in self.cluster.running[victim].replicas if len(held.log.segments) > 1]
        if not logs:
            return
        segment = rng.choice(rng.choice(logs).segments[:-1])
        at = rng.randrange(segment.size) if segment.size else 0
        match rng.choice(["segment", "both", "short", "zeros"]):
            case "segment" if disk.exists(segment.path):
                disk.lose(segment.path)
            case "both":
                for path in filter(disk.exists, segment.paths()):
                    disk.lose(path)
            case "short" if at:
                disk.shorten(segment.path, at)
            case "zeros" if at:
                disk.zero(segment.path, at, rng.randrange(segment.size - at) + 1)

    async def _power_cut_all(self) -> None:
        cluster = self.cluster
        for broker in list(cluster.running):
            await cluster.power_cut(broker)
        for broker in cluster.ids:
            cluster.start(broker)

    def _elect_preferred(self) -> None:
        image = self.cluster.metadata.newest
        places = tuple(
            (topic.id, index) for topic in image.topics_by_id.values() for index in range(len(topic.partitions))
        )
        self.cluster.metadata.commit(ElectLeaders(Election.PREFERRED, places))

    def check(self, partition: int) -> None:
        """Check that every replica has acknowledged values once and in order, and other values at most once."""
        cluster = self.cluster
        for broker in cluster.image(partition).replicas:
            values = cluster.values(broker, partition)
            if broker not in self._hurt_ever:
                lost = [place.path for place in cluster.running[broker].damage.places() if place.path.endswith(".log")]
                assert not lost, f"rule 8: broker {broker}, whose disk is sound, has damage in {lost}"
            known = [value for value in values if not value.startswith("loose-")]
            assert known == cluster.acked[partition], f"broker {broker} has not what was acknowledged in {partition}"
            assert len(values) == len(set(values)), f"rule 9: broker {broker} has something twice"
