"""The situation of a partition, as its leader has it in memory."""

from dataclasses import replace

from roles_fixture import RolesFixture
from virtual_time import run

from cordwood.archive.manifest import PartitionArchive
from cordwood.cluster.tiering.plan import Situation
from cordwood.cluster.tiering.situations import ActiveSegmentAge, situation_of
from cordwood.replication.partition import Partition
from cordwood.storage.config import LogConfig

NOW_MS = 5000


def seen(partition: Partition, age: ActiveSegmentAge | None = None, now_ms: int = NOW_MS) -> Situation:
    return situation_of(partition, PartitionArchive(), age or ActiveSegmentAge(), now_ms, 1000, 2000, -1, frozenset())


async def led(*values: str) -> tuple[RolesFixture, Partition]:
    """Return a leader whose log has a sealed segment for each value but the last."""
    broker = RolesFixture(LogConfig(segment_bytes=100))
    partition = broker.elect()
    for value in values:
        await broker.commit(value)
    return broker, partition


def test_a_sealed_segment_and_the_active_one() -> None:
    async def scenario() -> None:
        _, partition = await led("a", "b")
        found = seen(partition)
        assert [(one.base_offset, one.end_offset, one.is_sealed) for one in found.segments] == [
            (0, 1, True),
            (1, 2, False),
        ]
        assert (found.log_start, found.high_watermark, found.last_stable, found.log_end) == (0, 2, 2, 2)

    run(scenario())


def test_a_segment_without_its_file_is_not_ready_for_the_archive() -> None:
    async def scenario() -> None:
        _, partition = await led("a", "b")
        partition.log.segments[0].is_lost = True
        assert [one.is_sealed for one in seen(partition).segments] == [False, False]

    run(scenario())


def test_nothing_is_stable_enough_for_the_archive_without_the_producers_of_archived_records() -> None:
    async def scenario() -> None:
        _, partition = await led("a", "b", "c")
        log = partition.log
        log.config = replace(log.config, is_archived=True, local_retention_bytes=0)
        assert log.drop(partition.high_watermark, NOW_MS, 1)
        log.lost_archived_producers()
        assert seen(partition).last_stable == 0
        log.unseen = None
        assert seen(partition).last_stable == 3

    run(scenario())


def test_the_age_of_the_active_segment_is_the_time_since_it_was_first_seen() -> None:
    async def scenario() -> None:
        broker, partition = await led("a")
        age = ActiveSegmentAge()
        assert seen(partition, age, 10).active_since_ms == 10
        assert seen(partition, age, 20).active_since_ms == 10
        await broker.commit("b")
        assert seen(partition, age, 30).active_since_ms == 30

    run(scenario())
