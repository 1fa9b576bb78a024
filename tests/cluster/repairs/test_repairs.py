"""Damage on one replica's disk: found by any reader, never served, and refetched from other replicas (promise 4)."""

import asyncio
import errno
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from quorum_in_memory import MetadataLog
from replica_fixture import ME, NOW_MS, ReplicaFixture, no_leader_connections
from structlog.testing import capture_logs
from transactions import decide, write
from virtual_time import run

from cordwood.chaos.sim.replicas import TOPIC_ID, ReplicaCluster, run_scenario
from cordwood.chaos.sim.values import values_between
from cordwood.cluster.repairs import repairs
from cordwood.cluster.repairs.damage import DamageRegister, DamageState
from cordwood.cluster.repairs.repairs import REST_S, Repairs
from cordwood.replication.channel import Channel
from cordwood.replication.frames import Open
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.log_repair import QUARANTINE_FOLDER
from cordwood.replication.range_reads import RangeReader
from cordwood.replication.refusal import PartitionRefused
from cordwood.replication.scrubber import PASS_S
from cordwood.replication.truncation import Truncations
from cordwood.storage.batch import HEADER_BYTES
from cordwood.storage.errors import DamagedLog
from cordwood.storage.unseen_batches import UnseenBatches

VALUES = [f"value-{number}" for number in range(60)]
FOUND_S = 30.0
REPAIRED_S = 60.0
FLIPPED = 20
"""A byte in the first row of an index."""
PARTITION = f"/data/topics/{TOPIC_ID}/0"


def files(cluster: ReplicaCluster, broker: int, ending: str) -> list[str]:
    """Return the files of the broker's replica, oldest first."""
    return [path for path in cluster.disks[broker].files() if path.startswith(PARTITION) and path.endswith(ending)]


def flip(cluster: ReplicaCluster, broker: int, path: str, position: int = 100) -> None:
    cluster.disks[broker].flip(path, position, 3)


def lose_tail(cluster: ReplicaCluster, broker: int) -> None:
    """Damage the last batch of a stopped broker; no batch follows it."""
    path = files(cluster, broker, ".log")[-1]
    flip(cluster, broker, path, len(cluster.disks[broker].content(path).rstrip(b"\0")) - 1)


async def filled(cluster: ReplicaCluster) -> None:
    for value in VALUES:
        await cluster.produce(value)
    await cluster.settled()


async def is_whole_again(cluster: ReplicaCluster, *, times: int = 1, values: Sequence[str] = VALUES) -> None:
    """Wait until all damage found is repaired and all replicas are in sync and equal."""

    def is_done() -> bool:
        registers = [running.damage for running in cluster.running.values()]
        found, repaired = sum(each.found for each in registers), sum(each.repaired for each in registers)
        return found >= times and found == repaired

    await cluster.until(is_done, "everything found is repaired", REPAIRED_S)
    await cluster.settled()
    for broker in cluster.ids:
        assert cluster.values(broker) == list(values)


def a_follower(cluster: ReplicaCluster) -> int:
    return next(broker for broker in cluster.ids if broker != cluster.leader())


@pytest.mark.parametrize("at", [0, 1, -1], ids=["first segment", "second segment", "active segment"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_flipped_batch_of_a_running_broker_is_repaired(role: str, at: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.leader() if role == "leader" else a_follower(cluster)
        before = cluster.image()
        flip(cluster, broker, files(cluster, broker, ".log")[at])
        end = cluster.replica(broker).log.log_end
        await cluster.until(lambda: cluster.running[broker].damage.found == 1, "it is found", FOUND_S)
        await is_whole_again(cluster)
        assert cluster.running[broker].damage.found == 1
        assert cluster.image() == before, "no replica leaves the ISR, and no leader changes"
        assert cluster.replica(broker).log.log_end == end

    run_scenario(story)


@pytest.mark.parametrize("at", [0, 1, -1], ids=["first segment", "second segment", "active segment"])
def test_a_broker_that_starts_with_a_flipped_batch_does_not_lead_before_it_is_repaired(at: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.leader()
        await cluster.kill(broker)
        flip(cluster, broker, files(cluster, broker, ".log")[at])
        cluster.start(broker)
        await is_whole_again(cluster)

    run_scenario(story)


def test_all_start_at_once_and_the_damaged_one_first() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        for broker in cluster.ids:
            await cluster.kill(broker)
        flip(cluster, 1, files(cluster, 1, ".log")[0])
        cluster.start(1)
        await asyncio.sleep(1)
        for broker in (2, 3):
            cluster.start(broker)
        await is_whole_again(cluster)

    run_scenario(story)


@pytest.mark.parametrize("name", [".index", "leader-epochs", "recovery", "flushed"])
def test_a_file_that_can_be_rebuilt_costs_no_isr_membership(name: str) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = a_follower(cluster)
        await cluster.running[broker].log_maintenance.checkpoints.write(cluster.replica(broker))
        before = cluster.image()
        path = "/data/flushed" if name == "flushed" else files(cluster, broker, name)[0]
        flip(cluster, broker, path, 20)
        await is_whole_again(cluster)
        assert cluster.image() == before
        await cluster.kill(broker)
        cluster.start(broker)
        await cluster.settled()
        assert cluster.running[broker].damage.found == 0

    run_scenario(story)


def test_a_file_that_could_not_be_rewritten_is_repaired_though_no_check_finds_it_again() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        values, broker = list(VALUES), a_follower(cluster)
        await filled(cluster)
        path = files(cluster, broker, ".index")[-1]
        while len(cluster.disks[broker].content(path)) <= FLIPPED:
            values.append(f"value-{len(values)}")
            await cluster.produce(values[-1])
            await cluster.settled()
        flip(cluster, broker, path, FLIPPED)
        cluster.disks[broker].faults.fail_next_write(path, code=errno.ENOSPC)

        def is_refused() -> bool:
            return any(line["event"] == "file.not_rewritten" for line in reported)

        with capture_logs() as reported:
            await cluster.until(is_refused, "the disk has no room for it", FOUND_S)
        # The active segment writes its index with the next records.
        for _ in range(40):
            values.append(f"value-{len(values)}")
            await cluster.produce(values[-1])
        await is_whole_again(cluster, values=values)

    run_scenario(story)


def test_a_checkpoint_that_damaged_batches_keep_from_being_rewritten_is_rewritten_later() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = a_follower(cluster)
        await cluster.running[broker].log_maintenance.checkpoints.write(cluster.replica(broker))
        path, segment = files(cluster, broker, "recovery")[0], files(cluster, broker, ".log")[0]
        damage, rewritten = DamagedLog(segment, 0, "not what was written"), repairs.rewrite

        async def too_early(*_: Any) -> None:
            patched.setattr(repairs, "rewrite", rewritten)
            raise damage

        def is_rewritten() -> bool:
            return any(line["event"] == "file.rewritten" and line["path"] == path for line in reported)

        with pytest.MonkeyPatch.context() as patched, capture_logs() as reported:
            patched.setattr(repairs, "rewrite", too_early)
            flip(cluster, broker, path, 20)
            await cluster.until(is_rewritten, "the checkpoint is written again", FOUND_S + REST_S)
        assert [line["path"] for line in reported if line["event"] == "segment.refetched"] == [segment]

    run_scenario(story)


def test_the_damaged_segment_is_kept_for_who_wants_to_look() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = a_follower(cluster)
        path = files(cluster, broker, ".log")[1]
        flip(cluster, broker, path)
        damaged = cluster.disks[broker].content(path)
        await is_whole_again(cluster)
        [copy] = [name for name in cluster.disks[broker].files() if QUARANTINE_FOLDER in name and name.endswith(".log")]
        assert cluster.disks[broker].content(copy) == damaged

    run_scenario(story)


def test_a_repair_that_ends_unexpectedly_is_tried_again_and_meanwhile_the_replica_follows() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = a_follower(cluster)
        # From here on only repairs sync the flushed-offset marks.
        await cluster.running[broker].log_maintenance.checkpoints.write(cluster.replica(broker))
        await cluster.kill(broker)
        lose_tail(cluster, broker)
        cluster.start(broker)
        replica = cluster.replica(broker)
        cluster.disks[broker].on_sync, sound = without_threads, cluster.disks[broker].on_sync
        with capture_logs() as reported:
            await cluster.until(lambda: bool(repairs_given_up(reported)), "the repair has failed", FOUND_S)
            epoch = cluster.image().leader_epoch
            await asyncio.sleep(0.9 * REST_S)
            assert cluster.image().leader_epoch == epoch, "no partition gets a new leader while it rests"
            await cluster.until(lambda: replica.following is not None, "it follows nonetheless", REST_S)
            await cluster.until(lambda: len(repairs_given_up(reported)) > 1, "it is tried again", 2 * REST_S)
        assert "can't start new thread" in next(
            str(line["reason"]) for line in reported if line["event"] == "replica.not_cut"
        )
        cluster.disks[broker].on_sync = sound
        await is_whole_again(cluster)

    run_scenario(story)


def without_threads(path: str) -> None:
    """Let no truncation happen: each syncs the flushed-offset marks first."""
    if path == "/data/flushed":
        raise RuntimeError("can't start new thread")


def repairs_given_up(reported: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return [line for line in reported if line["event"] == "replica.not_repaired"]


def test_looking_after_what_is_not_well_goes_on_after_whatever_went_wrong() -> None:
    async def story() -> None:
        broker, tries = ReplicaFixture(), 0

        def open_more() -> None:
            nonlocal tries
            tries += 1
            raise RuntimeError("can't start new thread")

        broker.disk.leave_free(0)
        broker.disk.faults.fail_next_write("", code=errno.ENOSPC)
        with pytest.raises(PartitionRefused):
            broker.partition()
        repairs = repairs_of(broker, open_more)
        with capture_logs() as reported:
            await repairs.declared()
            await asyncio.sleep(3 * REST_S)
        assert tries > 1
        assert {line["event"] for line in reported} == {"repairs.failed"}
        await repairs.close()

    run(story())


def repairs_of(broker: ReplicaFixture, open_more: Callable[[], None]) -> Repairs:
    """Return the repairs of a broker without leader connections."""

    log_maintenance = LogMaintenance(broker.replicas, lambda: NOW_MS, Intervals(1e9, 0.1, 1.0))
    quorum = MetadataLog().voter(ME)
    register = DamageRegister()

    async def unreachable(_host: str, _port: int, _received: object) -> Channel:
        raise OSError("unreachable")

    def reader() -> RangeReader:
        return RangeReader(lambda _broker: None, lambda: Open(ME, UUID(int=1), 0, ""), unreachable)

    return Repairs(
        quorum,
        ME,
        broker.replicas,
        no_leader_connections(),
        log_maintenance,
        Truncations(),
        open_more,
        register,
        reader,
    )


def test_the_only_one_in_sync_is_never_truncated() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker, [other] = cluster.leader(), [broker for broker in cluster.ids if broker != cluster.leader()]
        await cluster.kill(other)
        await cluster.until(lambda: cluster.isr() == {broker}, "one is left")
        flip(cluster, broker, files(cluster, broker, ".log")[0])
        running = cluster.running[broker]
        await cluster.until(lambda: running.damage.found == 1, "it is found", FOUND_S)
        await cluster.until(lambda: cluster.leader() == broker, "it leads")
        assert cluster.replica(broker).log.log_end == len(VALUES)
        assert [place.state for place in running.damage.places()] == [DamageState.FOUND]
        cluster.start(other)
        await is_whole_again(cluster)

    run_scenario(story, brokers=2, min_isr=1)


@pytest.mark.parametrize("is_tail", [False, True])
def test_damage_that_no_replica_can_repair_ends_with_the_records_that_it_is_in(*, is_tail: bool) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.leader()
        if is_tail:
            await cluster.kill(broker)
            lose_tail(cluster, broker)
            cluster.start(broker)
            await cluster.until(lambda: cluster.leader() == broker, "it leads")
            cluster.replace_producer(0)
            await cluster.produce("next")
        else:
            flip(cluster, broker, files(cluster, broker, ".log")[0])
        register = cluster.running[broker].damage
        await cluster.until(lambda: register.found >= 1, "it is found", FOUND_S)
        log = cluster.replica(broker).log
        log.raise_log_start(log.segments[-1].base_offset)
        await cluster.until(lambda: register.under_repair == 0, "no damage is left", FOUND_S)

    run_scenario(story, brokers=1, min_isr=1)


@pytest.mark.parametrize("is_shortened", [False, True])
def test_what_the_only_one_in_sync_has_lost_comes_from_a_replica_that_was_away(*, is_shortened: bool) -> None:
    """The lost records are of an epoch of which the one that lost them has no other record."""

    async def story(cluster: ReplicaCluster) -> None:
        for value in VALUES[:5]:
            await cluster.produce(value)
        await cluster.settled()
        other, [broker] = cluster.leader(), [broker for broker in cluster.ids if broker != cluster.leader()]
        await cluster.kill(other)
        await cluster.until(lambda: cluster.leader() == broker, "the next one leads")
        await cluster.produce(VALUES[5])
        cluster.start(other)
        await cluster.until(lambda: cluster.isr() == {broker, other}, "both have all of it")
        await cluster.kill(other)
        await cluster.until(lambda: cluster.isr() == {broker}, "one is left")
        await cluster.kill(broker)
        [path], disk = files(cluster, broker, ".log"), cluster.disks[broker]
        if is_shortened:
            disk.shorten(path, len(disk.content(path).rstrip(b"\0")) // 6 * 5)
        else:
            disk.lose(path)
        cluster.start(broker)
        await cluster.until(lambda: cluster.leader() == broker, "it leads")
        # The sequence numbers of the lost batches are lost too.
        cluster.replace_producer(0)
        await cluster.produce("next")
        cluster.start(other)
        await is_whole_again(cluster, values=[*VALUES[:6], "next"])

    run_scenario(story, brokers=2, min_isr=1)


@pytest.mark.parametrize("size", [1, 300_000])
def test_a_transaction_that_was_lost_and_aborted_meanwhile_is_aborted_once_it_comes_back(size: int) -> None:
    """With `size` bytes that come while it is read again, which are read in a thread where they are many."""

    async def story(cluster: ReplicaCluster) -> None:
        await cluster.produce("first")
        broker, leader = a_follower(cluster), cluster.replica(cluster.leader())
        write(leader, "aborted", producer=1)
        await cluster.settled()
        other = cluster.leader()
        await cluster.kill(other)
        await cluster.until(lambda: cluster.isr() == {broker}, "one is left")
        await cluster.kill(broker)
        [path], disk = files(cluster, broker, ".log"), cluster.disks[broker]
        disk.shorten(path, len(disk.content(path).rstrip(b"\0")) - 1)
        cluster.start(broker)
        await cluster.until(lambda: cluster.leader() == broker, "it leads")
        decide(cluster.replica(broker), commit=False, producer=1)
        cluster.replace_producer(0)
        await cluster.produce("next")
        await cluster.running[broker].log_maintenance.checkpoints.write(cluster.replica(broker))
        await cluster.kill(broker)
        cluster.start(broker)
        await cluster.until(lambda: cluster.leader() == broker, "it leads again")
        replica, damage = cluster.replica(broker), cluster.running[broker].damage
        read_on, reads = UnseenBatches.read_on, 0

        def and_append(unseen: UnseenBatches) -> None:
            nonlocal reads
            read_on(unseen)
            reads += 1
            if reads == 1:
                write(replica, "x" * size, producer=2)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(UnseenBatches, "read_on", and_append)
            cluster.start(other)
            await cluster.until(lambda: damage.found == damage.repaired > 0, "all of it is there again", REPAIRED_S)
        await cluster.settled()
        for each in cluster.ids:
            assert cluster.replica(each).log.aborted(0, replica.log.log_end) == [(1, 1)]
        assert replica.last_stable_offset == replica.log.log_end - 1
        assert reads == (2 if size == 1 else 3)

    run_scenario(story, brokers=2, min_isr=1)


def test_no_replica_truncates_what_the_only_one_in_sync_has_lost() -> None:
    """Where the next leader epoch began within the lost records is not known: nothing says that they are others."""

    async def story(cluster: ReplicaCluster) -> None:
        for value in VALUES[:4]:
            await cluster.produce(value)
        await cluster.settled()
        broker, other = cluster.leader(), a_follower(cluster)
        await cluster.kill(other)
        await cluster.until(lambda: cluster.isr() == {broker}, "one is left")
        await cluster.produce(VALUES[4])
        await cluster.kill(broker)
        cluster.start(broker)
        await cluster.until(lambda: cluster.leader() == broker, "it leads in the next epoch")
        await cluster.produce(VALUES[5])
        await cluster.kill(broker)
        [path], disk = files(cluster, broker, ".log"), cluster.disks[broker]
        disk.shorten(path, len(disk.content(path).rstrip(b"\0")) // 6 * 2)
        cluster.start(broker)
        await cluster.until(lambda: cluster.leader() == broker, "it leads with its loss")
        cluster.start(other)
        await asyncio.sleep(REPAIRED_S)
        assert cluster.values(other) == VALUES[:4]

    run_scenario(story, brokers=2, min_isr=1)


@pytest.mark.parametrize("seed", range(8))
def test_bytes_flipped_anywhere_on_one_broker_are_made_good_under_load(seed: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        rng, number = random.Random(seed), 0
        for _ in range(5):
            for _ in range(20):
                await cluster.produce(f"{number}")
                number += 1
            broker = rng.choice(cluster.ids)
            is_at_rest = rng.random() < 0.5
            if is_at_rest:
                await cluster.kill(broker)
            paths = [
                path for path in cluster.disks[broker].files() if TOPIC_ID.hex[:8] in path or path == "/data/flushed"
            ]
            for path in rng.sample(paths, min(3, len(paths))):
                size = len(cluster.disks[broker].content(path))
                if size and QUARANTINE_FOLDER not in path:
                    flip(cluster, broker, path, rng.randrange(size))
            if is_at_rest:
                cluster.start(broker)
            await cluster.produce(f"{number}")
            number += 1
            await asyncio.sleep(2 * PASS_S)
            await cluster.until(
                lambda: all(each.damage.under_repair == 0 for each in cluster.running.values()), "all is repaired", 60
            )
            await cluster.settled()
        for broker in cluster.ids:
            assert cluster.values(broker) == [str(value) for value in range(number)]

    run_scenario(story, seed)


@pytest.mark.parametrize("is_directory_left", [False, True])
def test_a_replica_whose_files_are_gone_gets_all_of_it_again(is_directory_left: bool) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = a_follower(cluster)
        await cluster.kill(broker)
        cluster.disks[broker].remove_tree(PARTITION)
        if is_directory_left:
            cluster.disks[broker].make_directories(PARTITION)
        cluster.start(broker)
        await is_whole_again(cluster)

    run_scenario(story)


def test_what_a_failed_disk_held_is_led_by_others() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.leader()
        cluster.disks[broker].faults.fail_next_write(".log")
        sending = asyncio.ensure_future(cluster.produce("more"))
        await cluster.until(lambda: broker not in {cluster.leader(), *cluster.isr()}, "another leads", FOUND_S)
        await sending
        assert cluster.running[broker].replicas.directories[0].is_offline

    run_scenario(story)


@pytest.mark.parametrize("seed", range(3))
def test_a_broker_without_its_disk_is_out_of_every_isr_before_it_serves(seed: int) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.rng.choice(cluster.ids)
        await cluster.wipe(broker)
        cluster.start(broker)
        assert broker not in {cluster.leader(), *cluster.isr()}
        await cluster.settled()
        for each in cluster.ids:
            assert cluster.values(each) == VALUES

    run_scenario(story, seed)


def sizes(cluster: ReplicaCluster, broker: int) -> dict[str, int]:
    return {path: len(cluster.disks[broker].content(path).rstrip(b"\0")) for path in files(cluster, broker, ".log")}


def remove_segment(cluster: ReplicaCluster, broker: int, at: int, *endings: str) -> None:
    for ending in endings:
        cluster.disks[broker].lose(files(cluster, broker, ending)[at])


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("at", [0, 1, -2], ids=["first segment", "second segment", "last sealed segment"])
@pytest.mark.parametrize("endings", [(".log",), (".log", ".index")], ids=["segment", "segment and index"])
@pytest.mark.parametrize("while_running", [True, False], ids=["running", "stopped"])
def test_a_missing_segment_is_refetched_and_nothing_else_moves(
    role: str, at: int, endings: tuple[str, ...], while_running: bool
) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        for each in cluster.ids:
            await cluster.running[each].log_maintenance.checkpoints.write(cluster.replica(each))
        broker = cluster.leader() if role == "leader" else a_follower(cluster)
        before = sizes(cluster, broker)
        if not while_running:
            await cluster.kill(broker)
        remove_segment(cluster, broker, at, *reversed(endings))
        if not while_running:
            cluster.start(broker)
        epoch = cluster.image().leader_epoch
        await is_whole_again(cluster)
        assert sizes(cluster, broker).items() >= before.items(), "the same bytes in the same files"
        assert cluster.replica(broker).log.log_start == 0
        assert cluster.image().leader_epoch == epoch or not while_running

    run_scenario(story)


def test_a_segment_cut_short_and_a_zeroed_range_are_refetched_together() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.leader()
        first, second = files(cluster, broker, ".log")[:2]
        before, image = sizes(cluster, broker), cluster.image()
        cluster.disks[broker].shorten(first, before[first] // 3)
        cluster.disks[broker].zero(second, before[second] // 3, before[second] // 3)
        await is_whole_again(cluster, times=2)
        assert sizes(cluster, broker).items() >= before.items()
        assert cluster.image() == image

    run_scenario(story)


def test_two_replicas_damaged_in_different_places_each_fetch_from_the_other() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        image, [one, two, *_] = cluster.image(), cluster.ids
        flip(cluster, one, files(cluster, one, ".log")[0])
        flip(cluster, two, files(cluster, two, ".log")[2])
        ends = {broker: cluster.replica(broker).log.log_end for broker in cluster.ids}
        await is_whole_again(cluster, times=2)
        assert cluster.image() == image
        assert {broker: cluster.replica(broker).log.log_end for broker in cluster.ids} == ends

    run_scenario(story, brokers=2)


def test_two_damaged_replicas_alone_keep_every_sound_range_while_no_peer_answers() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        [broker, other] = cluster.ids
        await cluster.kill(other)
        bases = [segment.base_offset for segment in cluster.replica(broker).log.segments]
        flip(cluster, broker, files(cluster, broker, ".log")[1])
        await cluster.until(lambda: cluster.running[broker].damage.found == 1, "it is found", FOUND_S)
        await asyncio.sleep(3 * PASS_S)
        log = cluster.replica(broker).log
        assert log.log_end == len(VALUES)
        for offset in [*range(bases[1]), *range(bases[2], len(VALUES))]:
            assert values_between(log, offset, offset + 1) == [(offset, VALUES[offset])]
        cluster.start(other)
        await is_whole_again(cluster)

    run_scenario(story, brokers=2, min_isr=1)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_range_that_the_disk_cannot_read_is_refetched(role: str) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = cluster.leader() if role == "leader" else a_follower(cluster)
        path, image = files(cluster, broker, ".log")[1], cluster.image()
        cluster.disks[broker].faults.fail_reads(path, 400, 401)
        await cluster.until(lambda: cluster.running[broker].damage.found == 1, "it is found", FOUND_S)
        await is_whole_again(cluster)
        assert cluster.image() == image

    run_scenario(story)


def test_a_follower_that_needs_what_its_leader_has_damaged_gets_it_once_that_is_refetched() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        leader = cluster.leader()
        wiped = a_follower(cluster)
        flip(cluster, leader, files(cluster, leader, ".log")[1])
        await cluster.wipe(wiped)
        cluster.start(wiped)
        await is_whole_again(cluster)

    run_scenario(story)


def test_a_lost_tail_costs_the_tail_alone() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker = a_follower(cluster)
        await cluster.kill(broker)
        lose_tail(cluster, broker)
        cluster.start(broker)
        least = len(VALUES)

        def is_done() -> bool:
            nonlocal least
            least = min(least, cluster.replica(broker).log.log_end)
            register = cluster.running[broker].damage
            return register.found == register.repaired == 1

        await cluster.until(is_done, "the tail is there again", REPAIRED_S)
        assert least == len(VALUES) - 1
        await is_whole_again(cluster)

    run_scenario(story)


@pytest.mark.parametrize("is_damaged_before", [False, True])
def test_a_transaction_before_a_lost_tail_is_ended_by_the_marker_that_comes_after_the_repair(
    *, is_damaged_before: bool
) -> None:
    """The replica follows before its tail is cut, and learns a high watermark that is above the cut."""

    async def story(cluster: ReplicaCluster) -> None:
        await cluster.produce("first")
        broker, leader = a_follower(cluster), cluster.replica(cluster.leader())
        write(leader, "aborted", producer=1)
        await filled(cluster)
        await cluster.running[broker].log_maintenance.checkpoints.write(cluster.replica(broker))
        await cluster.produce("lost")
        write(leader, "also aborted", producer=2)
        decide(leader, commit=False, producer=2)
        await cluster.settled()
        lost = leader.log.log_end - 3
        segment = cluster.replica(broker).log.segments[-1]
        assert segment.base_offset < lost
        path, position = segment.path, segment.locate(lost)
        await cluster.kill(broker)
        flip(cluster, broker, path, position + HEADER_BYTES)
        if is_damaged_before:
            flip(cluster, broker, files(cluster, broker, ".log")[1])
        cluster.start(broker)
        replica, disk = cluster.replica(broker), cluster.disks[broker]
        disk.on_sync, sound = without_threads, disk.on_sync
        await cluster.until(lambda: replica.high_watermark > lost, "it follows before the repair", FOUND_S)
        disk.on_sync = sound
        damage, places = cluster.running[broker].damage, 1 + is_damaged_before
        await cluster.until(lambda: damage.found == damage.repaired == places, "all of it is there again", REPAIRED_S)
        decide(leader, commit=False, producer=1)
        await cluster.settled()
        end = leader.log.log_end
        assert (replica.high_watermark, replica.last_stable_offset) == (end, end)
        assert replica.log.aborted(0, end) == leader.log.aborted(0, end) == [(1, 1), (2, lost + 1)]

    run_scenario(story)


def test_a_foreign_segment_is_put_into_quarantine() -> None:
    async def story(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        broker, image = a_follower(cluster), cluster.image()
        disk, base = cluster.disks[broker], cluster.replica(broker).log.segments[1].base_offset
        foreign = f"{PARTITION}/{base + 1:020d}.log"
        disk.has_lied = True
        file = disk.open(foreign, create=True)
        file.pwrite([b"of another log"], 0)
        await is_whole_again(cluster)
        assert not disk.exists(foreign)
        [copy] = [name for name in disk.files() if QUARANTINE_FOLDER in name]
        assert disk.content(copy) == b"of another log"
        assert cluster.image() == image

    run_scenario(story)
