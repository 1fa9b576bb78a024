"""Liveness (rule 11): after faults end, sends are answered, replicas are in sync and equal, consumers reach the end."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from itertools import chain

from cordwood.chaos.history import content_of
from cordwood.chaos.sim.admin import dead_letter_topic_of
from cordwood.chaos.sim.archive_checks import ArchiveChecks
from cordwood.chaos.sim.chores import LOSSY_TOPIC
from cordwood.chaos.sim.consumer_member import SimulatedConsumerMember
from cordwood.chaos.sim.group_member import SimulatedMember
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.plan import TOPIC
from cordwood.chaos.sim.producer import SimulatedProducer
from cordwood.chaos.sim.raw import Cursor, archived, batches
from cordwood.chaos.sim.transactional_client import TransactionalClient
from cordwood.chaos.sim.world import World
from cordwood.chaos.workload import decode as value_in
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.metadata.image import PartitionImage
from cordwood.cluster.share.dead_letters import OFFSET, PARTITION
from cordwood.replication.partition import Partition
from cordwood.storage.batch import peek
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, decode

SERVE_S = 20.0
"""Time to recover logs, form the quorum and unfence every broker."""
PUT_RIGHT_S = 60.0
"""Time for the administrator to finish its chores and to elect leaders."""
ANSWERED_S = 20.0
"""Time for a few attempts with a request timeout of 5 s each."""
EQUAL_S = 60.0
"""Time to replicate: some runs limit replicas out of sync to 64 KiB/s."""
READ_S = 120.0
"""Time for group members to rejoin (session 3 s, rebalance 5 s) and to read from their last committed offset.

A member that is alone fetches its partitions in turn, which takes a second for each that has nothing new. A fetch has
records of one segment, which may be two: then a member reads one record a second, and lags by dozens.
"""
ON_THE_WAY_S = 1.0
"""Time in which a request without an answer reaches its broker, and is appended: 50 times the largest latency."""
ASSIGNED_S = 30.0
"""Time for former members' sessions to end (3 s) and for partitions to be given back (4 s each)."""
REPAIRED_S = 120.0
"""Time for scrubbing to find and repair damage that no read has met."""
ARCHIVED_S = 90.0
"""Time for uploads at 64 KiB/s, whose pauses after failures are up to 30 s."""
DELETED_S = 60.0
"""Time for deletions, with the same pauses, after a grace period."""
LOOK_S = 0.2
BATCHES_KEPT = 2048
"""Batches whose records are kept."""


class Unhealed(Exception):
    """A condition was not met in time. The message is a sentence for the verdict."""


async def come_together(world: World) -> None:
    """Wait for every condition in turn, then read every replica into the history. Raises Unhealed."""
    await _until(world, lambda: _all_serve(world), "all brokers to serve", lambda: _who_is_out(world), SERVE_S)
    world.clients.rest()
    caretaker = world.clients.put_right(world)
    await _until(world, lambda: caretaker is None or caretaker.done(), "all to be put right", world.state, PUT_RIGHT_S)
    producers: list[SimulatedProducer | TransactionalClient] = [*world.clients.producers, *world.clients.transactional]
    for producer in producers:
        producer.stop()
    await _until(
        world,
        lambda: all(not producer.in_flight for producer in producers),
        "every send to be answered, and every transaction to end",
        lambda: str([producer.in_flight for producer in producers]),
        ANSWERED_S,
    )
    if any(producer.plan.acks == 0 for producer in world.clients.producers):
        # These sends have no answer: the last ones are still on their way.
        await asyncio.sleep(ON_THE_WAY_S)
    await _until(
        world, lambda: world.is_redundant() and _all_equal(world), "all replicas to be equal", world.state, EQUAL_S
    )
    await _until(
        world,
        lambda: not _unassigned(world),
        "each partition to be a member's",
        lambda: str(_unassigned(world)),
        ASSIGNED_S,
    )
    await _until(world, lambda: _all_read(world), "consumers to read everything", lambda: _positions(world), READ_S)
    replicas = _Replicas(world)
    # Check the replicas again with their bytes: newly detected damage takes a replica out until it is repaired.
    await _until(
        world,
        replicas.are_complete,
        "all damage to be repaired",
        lambda: f"{replicas.damage} {world.state()}",
        REPAIRED_S,
    )
    replicas.write_down()
    _write_dead_letters_down(world)
    if (archive := world.archive_checks) is not None:
        await _archive_is_complete(world, archive)


def _write_dead_letters_down(world: World) -> None:
    """Put the dead letters of share groups into the history, as the leaders have them on disk."""
    for share in {share.group: share for share in world.plan.share_members if share.has_dead_letters}.values():
        leader = world.hosts[world.leader(0, dead_letter_topic_of(share.group))]
        assert leader.watched is not None, "all brokers run"
        held = leader.watched.replicas.get(dead_letter_topic_of(share.group), 0)
        assert held is not None, "the leader has a replica"
        world.clients.history.dead_letters_read(world.clients.share_groups[share.group])
        for batch in batches(leader.disk, held, Cursor(held.log.log_start), held.log.log_end):
            for record in decode(batch):
                headers = dict(record.headers)
                partition, offset = (int(headers[name] or b"") for name in (PARTITION, OFFSET))
                world.clients.history.dead_letter(share.group_number, partition, offset)


async def _archive_is_complete(world: World, archive: ArchiveChecks) -> None:
    """Wait until all that is due is archived, and nothing else is in the store. Compare it with the logs."""

    due = archive.due_ends(world.watched())
    await _until(
        world,
        lambda: not archive.lacking(world.image, world.watched(), due),
        "the archive to be complete",
        lambda: archive.lacking(world.image, world.watched(), due),
        ARCHIVED_S,
    )
    grace_s = world.hosts[1].settings.archive_grace_ms / 1000

    def outdated() -> str:
        return archive.outdated(world.image, BEGAN_MS + int((world.now_s - 2 * grace_s - DELETED_S) * 1000))

    # Where clocks have jumped, it is not known what is older than the grace period.
    if not any(host.clock_jump_s for host in world.hosts.values()):
        await _until(world, lambda: not outdated(), "objects to be deleted", outdated, 2 * grace_s + 2 * DELETED_S)
    disks = {broker_id: host.disk for broker_id, host in world.hosts.items()}
    for kind, sentence in await archive.compare(world.image, world.watched(), disks):
        world.alarm(kind, sentence)


async def _until(
    world: World, condition: Callable[[], bool], what: str, state: Callable[[], str], within_s: float
) -> None:
    deadline_s = world.now_s + within_s
    while not condition():
        if world.now_s > deadline_s:
            raise Unhealed(f"waited {within_s:.0f} s in vain for {what}: {state()}")
        await asyncio.sleep(LOOK_S)


def _all_serve(world: World) -> bool:
    watched = world.watched()
    return len(watched) == len(world.hosts) and all(broker.why_not_ready() is None for broker in watched)


def _who_is_out(world: World) -> str:
    reasons = [
        f"broker {host.broker_id}: {'it does not run' if host.watched is None else host.watched.why_not_ready()}"
        for host in world.hosts.values()
    ]
    return "; ".join(reasons)


def _replicas(world: World) -> list[tuple[PartitionImage, list[tuple[Watched, Partition | None]]]]:
    """Return each partition of each topic, with its replica on every assigned broker."""
    image, watched = world.image, {broker.broker_id: broker for broker in world.watched()}
    return [
        (agreed, [(watched[at], watched[at].replicas.with_id(topic.id, index)) for at in agreed.replicas])
        for topic in image.topics_by_id.values()
        if topic.name != LOSSY_TOPIC
        for index, agreed in enumerate(topic.partitions)
    ]


def _all_equal(world: World) -> bool:
    for _, replicas in _replicas(world):
        ends = {
            None if held is None or held.is_offline else (held.log.log_end, held.log.flushed_end, held.high_watermark)
            for _, held in replicas
        }
        end = ends.pop()
        if ends or end is None or len(set(end)) != 1:
            return False
    return not any(broker.damage.under_repair for broker in world.watched())


def _unassigned(world: World) -> list[tuple[str, int]]:
    """Return the partitions of each group of the consumer protocol that are not one member's, as members know it."""
    members = world.clients.consumer_members
    return [
        (group, partition)
        for group in sorted({member.group for member in members})
        for partition in range(world.plan.partitions)
        if sum(member.owns(partition) for member in members if member.group == group) != 1
    ]


def _all_read(world: World) -> bool:
    """Return whether each consumer, and each group as a whole, has read to the committed end."""
    ends, clients = [world.committed_end(partition) for partition in range(world.plan.partitions)], world.clients
    return (
        all(reader.position >= ends[reader.partition] for reader in clients.readers)
        and all(
            max(member.position(at) for member in members) >= end
            for members in _groups(world)
            for at, end in enumerate(ends)
        )
        and all(
            observer.starts.get(reader.partition, 0) > reader.last_record
            for observer in clients.share_observers
            for reader in clients.readers
        )
    )


def _groups(world: World) -> list[Sequence[SimulatedMember | SimulatedConsumerMember]]:
    clients = world.clients
    names = sorted({member.group for member in clients.consumer_members})
    groups = [[member for member in clients.consumer_members if member.group == name] for name in names]
    return [*([clients.members] if clients.members else ()), *groups]


def _positions(world: World) -> str:
    partitions = range(world.plan.partitions)
    ends = [world.committed_end(partition) for partition in partitions]
    consumers = [(reader.partition, reader.position) for reader in world.clients.readers]
    groups = [[[member.position(at) for at in partitions] for member in members] for members in _groups(world)]
    shares = [observer.starts for observer in world.clients.share_observers]
    return f"ends {ends}, consumers {consumers}, members of groups {groups}, starts of share groups {shares}"


class _Replicas:
    """The replicas of TOPIC as read from disk, once all are in sync and readable from start to end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: list[tuple[int, Partition, list[tuple[int, int]]]] = []
        self.damage = ""
        """The first replica that cannot be read, with the error."""

    def are_complete(self) -> bool:
        return self._world.is_redundant() and _all_equal(self._world) and self._are_readable()

    def _are_readable(self) -> bool:
        self.damage = ""
        self._read.clear()
        for broker in self._world.watched():
            for held in broker.replicas:
                if held.topic == TOPIC:
                    try:
                        self._read.append((broker.broker_id, held, self._records(broker, held)))
                    except (CorruptBatch, OSError, KeyError) as error:
                        self.damage = f"broker {broker.broker_id}: {error}"
                        return False
        return True

    def write_down(self) -> None:
        """Put the replicas into the history."""
        for broker_id, held, records in self._read:
            start, end = held.log.log_start, held.high_watermark
            self._world.clients.history.replica(broker_id, held.index, start, end, records)

    def _records(self, broker: Watched, held: Partition) -> list[tuple[int, int]]:
        """Return offset and value of every record of a replica. Raises CorruptBatch, OSError, KeyError."""
        disk, objects = self._world.hosts[broker.broker_id].disk, self._world.objects
        before = archived({} if objects is None else objects.contents, broker.quorum.image, held)
        start = held.log.log_start
        return [
            row
            for batch in chain(before, batches(disk, held, Cursor(start), held.log.log_end))
            for row in _rows(batch)
            if row[0] >= start
        ]


@functools.lru_cache(BATCHES_KEPT)
def _rows(batch: bytes) -> tuple[tuple[int, int], ...]:
    """Return offset and value of the records of a batch. Replicas have the same batches."""
    is_control = peek(batch).is_control
    return tuple(
        [(record.offset, _control_value(record) if is_control else value_in(record.value)) for record in decode(batch)]
    )


def _control_value(record: Record) -> int:
    """Return a number below that of any record, which differs where control records do."""
    return -2 - content_of(record.key, [("", record.value)], record.timestamp)
