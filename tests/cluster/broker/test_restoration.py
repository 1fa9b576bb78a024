"""Restored log directories: a broker opens them as after a clean stop, and a restoration may die at any step."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from archived_log import CLUSTER, ArchivedLog
from log_fixture import SMALL, START_MS, LogFixture

from cordwood.archive import layout
from cordwood.archive.commits import TopicObject, read_chain, topic_content
from cordwood.archive.obstore_store import ObstoreStore, open_store
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.cluster.broker import restore_mark
from cordwood.cluster.broker.identity import WrongDirectory
from cordwood.cluster.broker.restoration import (
    LEADER_EPOCHS_SKIPPED,
    PRODUCER_IDS_SKIPPED,
    CannotRestore,
    RestoredPartition,
    RestorePlan,
    RestoreTarget,
    plan,
    restore,
)
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, Image
from cordwood.cluster.metadata.quorum import QuorumOptions, SingleVoter
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.snapshot import encode
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.log import Log
from cordwood.storage.log_loader import open_log

BARN, GONE = UUID(int=1), UUID(int=2)
THREE = [1, 2, 3]
STEPS_MAX = 400


@pytest.fixture
def store(tmp_path: Path) -> ObstoreStore:
    """Return an archive of a topic with an archived partition and an empty one, and of a deleted topic."""
    log = LogFixture(SMALL)
    for number in range(30):
        log.send(number, f"value {number:040}")
    store = open_store((tmp_path / "archive").as_uri())

    async def scenario() -> None:
        await ArchivedLog(store, log.flush(), BARN).upload()
        for topic in (
            TopicObject(BARN, "barn", 2, {"retention.ms": "-1"}, 50, 2),
            TopicObject(GONE, "gone", 1, {}, 7000, is_deleted=True),
            TopicObject(UUID(int=3), "__transaction_state", 1, {}, 60),
        ):
            await store.put(layout.topic_name(CLUSTER, topic.id, 1), topic_content(topic))

    asyncio.run(scenario())
    return store


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def targets(*node_ids: int) -> list[RestoreTarget]:
    return [RestoreTarget(node_id, f"/data-{node_id}") for node_id in node_ids]


def plan_of(store: ObstoreStore, brokers: list[int], voters: list[int]) -> RestorePlan:
    return asyncio.run(plan(store, CLUSTER, brokers, voters))


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def run(
    store: ObstoreStore,
    disk: SimulatedDisk,
    brokers: list[int],
    voters: list[int],
    here: list[int] | None = None,
    **options: Any,
) -> list[RestoredPartition]:
    async def scenario() -> list[RestoredPartition]:
        wanted = await plan(store, CLUSTER, brokers, voters)
        places = targets(*(here or brokers))
        return [one async for one in restore(store, wanted, places, disk, START_MS, at_once, **options)]

    return asyncio.run(scenario())


def image_of_voter(disk: SimulatedDisk, node_id: int) -> Image:
    """Return what a Raft voter finds in its directory."""
    found = storage.read(disk, f"/data-{node_id}/metadata")
    assert (found.standing, found.damage) == (Standing.MEMBER, [])
    assert (found.log.end, found.image_term) == (found.image.index, 1)
    return found.image


def opened(disk: SimulatedDisk, node_id: int) -> Log:
    flushed = FlushedOffsets(disk.open(f"/data-{node_id}/flushed"))
    assert flushed.damage == []
    return open_log(disk, f"/data-{node_id}/topics/{BARN}/0", SMALL, flushed.get(BARN, 0), START_MS)


def content(log: Log) -> bytes:
    return b"".join(bytes(segment.read(0, segment.size)) for segment in log.segments)


def archived_content(store: ObstoreStore) -> bytes:
    async def scenario() -> bytes:
        chain = await read_chain(store, CLUSTER, BARN, 0)
        names = [layout.segment_names(CLUSTER, BARN, 0, one)[0] for one in chain.archive.segments]
        return b"".join([await store.get(name) for name in names])

    return asyncio.run(scenario())


def test_three_brokers_find_the_same_metadata_and_logs(store: ObstoreStore, disk: SimulatedDisk) -> None:
    restored = run(store, disk, THREE, THREE)
    assert [(one.topic, one.partition, one.gaps) for one in sorted(restored, key=lambda one: one.partition)] == [
        ("barn", 0, ()),
        ("barn", 1, ()),
    ]
    images = [image_of_voter(disk, node_id) for node_id in THREE]
    assert len({encode(image) for image in images}) == 1
    topic = images[0].topics_by_name["barn"]
    assert list(images[0].topics_by_name) == ["barn"]
    assert (topic.id, dict(topic.configs), len(topic.partitions)) == (BARN, {"retention.ms": "-1"}, 2)
    for partition in topic.partitions:
        assert len(partition.replicas) == 2
        assert (partition.isr, partition.leader) == (partition.replicas, NO_LEADER)
        assert partition.leader_epoch >= LEADER_EPOCHS_SKIPPED
    assert images[0].next_producer_id == 7000 + PRODUCER_IDS_SKIPPED
    assert {broker.id for broker in images[0].brokers.values() if broker.is_fenced} == set(THREE)
    assert images[0].archives[BARN, 0].segments
    expected = archived_content(store)
    for node_id in topic.partitions[0].replicas:
        log = opened(disk, node_id)
        assert (log.damage, content(log)) == ([], expected)
        restore_mark.refuse_unrestored(disk, [f"/data-{node_id}"])


def test_each_machine_may_restore_its_own_broker(store: ObstoreStore, disk: SimulatedDisk) -> None:
    ids = set()
    for node_id in THREE:
        run(store, disk, THREE, [1, 2], here=[node_id])
        ids.add(plan_of(store, THREE, [1, 2]).id)
    assert len(ids) == 1
    assert encode(image_of_voter(disk, 1)) == encode(image_of_voter(disk, 2))
    assert not disk.exists("/data-3/metadata")


def test_a_single_broker_has_two_copies_of_its_metadata(store: ObstoreStore, disk: SimulatedDisk) -> None:
    run(store, disk, [4], [])
    options = QuorumOptions(
        node_id=BrokerId(4),
        rng=random.Random(1),
        run_blocking=at_once,
        on_failure=pytest.fail,
        on_refused=pytest.fail,
    )
    quorum = SingleVoter.open(disk, "/data-4/metadata", options)
    assert (quorum.damage, quorum.image.cluster_id) == ([], CLUSTER)
    assert list(quorum.image.topics_by_name) == ["barn"]


def test_a_directory_in_use_is_refused(store: ObstoreStore, disk: SimulatedDisk) -> None:
    disk.make_directories("/data-1/topics")
    with pytest.raises(CannotRestore, match="/data-1 is not empty"):
        run(store, disk, [1], [])


def test_a_restoration_that_has_ended_is_not_repeated(store: ObstoreStore, disk: SimulatedDisk) -> None:
    run(store, disk, [1], [])
    log = f"/data-1/topics/{BARN}/0"
    disk.remove_tree(log)
    run(store, disk, [1], [])
    assert not disk.exists(log)


def test_another_cluster_is_unknown(store: ObstoreStore) -> None:
    with pytest.raises(CannotRestore, match="no topics of a cluster 'other'"):
        asyncio.run(plan(store, "other", [1], []))


def test_what_is_not_restored_is_said(store: ObstoreStore) -> None:
    assert [sentence.partition(":")[0] for sentence in plan_of(store, [1], []).passed_over] == ["__transaction_state"]


def test_brokers_start_without_lost_records_only_if_that_is_accepted(store: ObstoreStore, disk: SimulatedDisk) -> None:
    chain = asyncio.run(read_chain(store, CLUSTER, BARN, 0))
    lost = chain.archive.segments[1]
    asyncio.run(store.delete(layout.segment_names(CLUSTER, BARN, 0, lost)[:1]))
    with pytest.raises(CannotRestore, match="--accept-loss"):
        run(store, disk, [1], [])
    with pytest.raises(WrongDirectory, match="has not ended"):
        restore_mark.refuse_unrestored(disk, ["/data-1"])
    restored = run(store, disk, [1], [], accepts_losses=True)
    [log] = [one.log for one in restored if one.log is not None]
    assert [(loss.start, loss.end) for loss in log.losses] == [(lost.start_offset, lost.end_offset)]
    restore_mark.refuse_unrestored(disk, ["/data-1"])


def test_after_a_gap_the_commits_go_on_with_all_segments(store: ObstoreStore, disk: SimulatedDisk) -> None:
    before = asyncio.run(read_chain(store, CLUSTER, BARN, 0))
    asyncio.run(store.delete([layout.commit_name(CLUSTER, BARN, 0, 2)]))
    with pytest.raises(CannotRestore):
        run(store, disk, [1], [])
    restored = run(store, disk, [1], [], accepts_losses=True)
    assert {one.partition: one.gaps for one in restored}[0] == tuple(range(2, 3))
    after = asyncio.run(read_chain(store, CLUSTER, BARN, 0))
    assert (after.gaps, after.newest) == ((), before.newest + 1)
    assert after.archive.segments == before.archive.segments[:1]
    assert opened(disk, 1).log_end == before.archive.segments[0].end_offset


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_restoration_that_dies_at_any_step_goes_on(store: ObstoreStore, is_power_cut: bool) -> None:
    expected, deaths = archived_content(store), 0
    for step in range(0, STEPS_MAX, 7 if is_power_cut else 5):
        disk = SimulatedDisk(random.Random(step))
        disk.faults.die_after(step)
        try:
            run(store, disk, [1], [1])
            break
        except Died:
            deaths += 1
        disk.power_cut() if is_power_cut else disk.kill()
        disk.faults.die_after(None)
        if not _is_ended(disk):
            run(store, disk, [1], [1])
        disk.power_cut()
        if not _is_ended(disk):
            # The last mark was not on disk yet. A broker syncs it when it starts.
            run(store, disk, [1], [1])
        log = opened(disk, 1)
        assert (log.damage, content(log)) == ([], expected), f"step {step}"
        assert list(image_of_voter(disk, 1).topics_by_name) == ["barn"], f"step {step}"
        restore_mark.refuse_unrestored(disk, ["/data-1"])
    assert deaths > 10


def _is_ended(disk: SimulatedDisk) -> bool:
    """Return whether a broker would start: never before everything is on disk."""
    if not disk.exists("/data-1"):
        return False
    mark = restore_mark.read(disk, "/data-1")
    if mark is None:
        assert set(disk.list_directory("/data-1")) <= {"restore.new"}
        return False
    return mark.is_done
