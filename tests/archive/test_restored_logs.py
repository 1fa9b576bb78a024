"""Restored logs: what a broker opens is what was archived, byte for byte."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
from archived_log import CLUSTER, ArchivedLog
from faulty_store import Fault, FaultyS3
from log_fixture import ALL_BYTES, SMALL, START_MS, TOPIC_ID, LogFixture, log_with_transactions

from cordwood.archive import layout
from cordwood.archive.commits import Chain, commit_content, read_chain
from cordwood.archive.manifest import NO_LIMIT, PartitionArchive, without
from cordwood.archive.obstore_store import ObstoreStore, open_store
from cordwood.archive.restore import LocalLimits, Place, RestoredLog, restore_log
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.batch import check
from cordwood.storage.flushed_offsets import FlushedOffset
from cordwood.storage.log import Log
from cordwood.storage.log_loader import open_log
from cordwood.storage.records import Record, encode

PLACE = Place(CLUSTER, TOPIC_ID, 0)
DIRECTORIES = ("/one/topics/t/0", "/two/topics/t/0")


@pytest.fixture
def store(tmp_path: Path) -> ObstoreStore:
    return open_store((tmp_path / "archive").as_uri())


@pytest.fixture
def log() -> LogFixture:
    return log_with_transactions()


@pytest.fixture
def archived(log: LogFixture, store: ObstoreStore) -> ArchivedLog:
    return asyncio.run(ArchivedLog(store, log).upload())


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def restore(store: ObstoreStore, disk: SimulatedDisk, limits: LocalLimits = LocalLimits()) -> RestoredLog:  # noqa: B008
    async def scenario() -> RestoredLog:
        chain = await read_chain(store, *PLACE)
        return await restore_log(store, PLACE, chain, disk, DIRECTORIES, limits, asyncio.to_thread)

    return asyncio.run(scenario())


def opened(disk: SimulatedDisk, restored: RestoredLog, directory: str = DIRECTORIES[0]) -> Log:
    return open_log(disk, directory, SMALL, FlushedOffset(restored.end, restored.leader_epoch), START_MS)


def content(log: Log, start: int, end: int) -> bytes:
    pieces = b""
    while start < end:
        found = log.slice(start, ALL_BYTES, end)
        assert found is not None
        pieces += bytes(found.segment.read(found.start, found.stop))
        start = found.next_offset()
    return pieces


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_restored_log_is_the_archived_one(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk, directory: str
) -> None:
    restored = restore(store, disk)
    log, source = opened(disk, restored, directory), open_log_at(archived)
    end = archived.archive.end
    assert (log.damage, log.log_start, log.log_end, log.flushed_end) == ([], 0, end, end)
    assert end is not None
    assert content(log, 0, end) == content(source, 0, end)
    assert list(log.epochs) == list(source.epochs)
    assert log.aborted(0, end) == source.aborted(0, end)
    assert restored == RestoredLog(0, 0, end, log.size, 3, 9, ())


@pytest.mark.usefixtures("archived")
def test_the_log_goes_on_in_a_new_segment(store: ObstoreStore, disk: SimulatedDisk) -> None:
    restored = restore(store, disk)
    log = opened(disk, restored)
    count = len(log.segments)
    batch = encode([Record(0, START_MS, None, b"more")])
    log.append(batch, check(batch), 5, START_MS)
    assert len(log.segments) == count + 1
    assert log.segments[-1].base_offset == restored.end


def test_producers_go_on_where_they_were(archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk) -> None:
    log = opened(disk, restore(store, disk))
    source = open_log_at(archived)
    assert known(log) == known(source)
    assert log.producers.transactions.first_undecided(log.log_end) == (
        source.producers.transactions.first_undecided(log.log_end)
    )


def known(log: Log) -> dict[int, tuple[object, ...]]:
    """Return what a log knows of each producer. A truncation forgets the oldest batches, and a restoration times."""
    return {
        producer_id: (one.epoch, one.batches[-1:], one.marker_offset, one.current_transaction_first_offset)
        for producer_id, one in log.producers
    }


def open_log_at(archived: ArchivedLog) -> Log:
    """Return the archived log, cut at the end of its archive."""
    archived.log.truncate(archived.archive.end or 0)
    return archived.log.log


@pytest.mark.usefixtures("archived")
def test_a_power_cut_after_the_restoration_changes_nothing(store: ObstoreStore, disk: SimulatedDisk) -> None:
    restored = restore(store, disk)
    before = content(opened(disk, restored), 0, restored.end)
    disk.power_cut()
    log = opened(disk, restored)
    assert log.damage == []
    assert content(log, 0, restored.end) == before


def test_only_the_newest_segments_are_kept_on_the_disks(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk
) -> None:
    segments = archived.archive.segments
    limits = LocalLimits(size=segments[-1].size + segments[-2].size)
    restored = restore(store, disk, limits)
    log = opened(disk, restored)
    assert (log.log_start, log.local_start) == (0, segments[-2].base_offset)
    assert restored.local_start == segments[-2].base_offset
    assert log.damage == []
    expected = content(archived.log.log, restored.local_start, restored.end)
    assert content(log, restored.local_start, restored.end) == expected
    assert list(log.epochs) == list(archived.log.log.epochs)


def test_old_segments_are_left_in_the_archive_but_never_the_last_one(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk
) -> None:
    segments = archived.archive.segments
    assert restore(store, disk, LocalLimits(from_ms=segments[-2].max_timestamp)).local_start == segments[-2].base_offset
    assert restore(store, disk, LocalLimits(from_ms=1 << 60)).local_start == segments[-1].base_offset


def test_a_partition_whose_records_have_expired_goes_on_at_its_end(store: ObstoreStore, disk: SimulatedDisk) -> None:
    chain = Chain(PartitionArchive(sequence=3), end=500)
    restored = asyncio.run(restore_log(store, PLACE, chain, disk, DIRECTORIES, LocalLimits(), asyncio.to_thread))
    log = opened(disk, restored)
    assert (log.log_start, log.log_end, log.damage) == (500, 500, [])


def archived_nothing():  # type: ignore[no-untyped-def]
    from cordwood.archive.manifest import PartitionArchive

    return PartitionArchive(sequence=3)


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_a_segment_that_is_gone_is_a_loss_and_the_others_are_there(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk, tmp_path: Path, fault: str
) -> None:
    lost, name = archived.archive.segments[1], archived.objects[1][0]
    path = tmp_path / "archive" / name
    path.unlink() if fault == "missing" else path.write_bytes(path.read_bytes()[:-1] + b"?")
    restored = restore(store, disk)
    assert [(loss.start, loss.end) for loss in restored.losses] == [(lost.start_offset, lost.end_offset)]
    assert name in restored.losses[0].what
    log = opened(disk, restored)
    assert len(log.damage) == 1
    source = archived.log.log
    assert content(log, 0, lost.start_offset) == content(source, 0, lost.start_offset)
    assert content(log, lost.end_offset, restored.end) == content(source, lost.end_offset, restored.end)


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_a_state_that_is_gone_is_found_in_the_batches(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk, tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "archive" / archived.objects[-1][1]
    path.unlink() if fault == "missing" else path.write_bytes(path.read_bytes()[:-1] + b"?")
    restored = restore(store, disk)
    end = restored.end
    assert [(loss.start, loss.end) for loss in restored.losses] == [(end, end)]
    log, source = opened(disk, restored), open_log_at(archived)
    assert log.damage == []
    assert content(log, 0, end) == content(source, 0, end)
    assert list(log.epochs) == list(source.epochs)
    assert log.aborted(0, end) == source.aborted(0, end)
    assert known(log) == known(source)


def test_overlapping_segments_are_cut(log: LogFixture, store: ObstoreStore, disk: SimulatedDisk) -> None:
    # The next leader has other segments, of the same batches.
    other = LogFixture(replace(SMALL, segment_bytes=1700))
    other.take_stamped(content(log.log, 0, log.log.log_end)).flush()

    async def scenario() -> ArchivedLog:
        archived = ArchivedLog(store, log)
        await archived.upload_one(log.log.segments[0])
        archived.log, end = other, log.log.segments[0].end_offset
        for segment in other.log.segments[:-1]:
            if segment.end_offset > end:
                await archived.upload_one(segment)
        return archived

    archived = asyncio.run(scenario())
    overlapping = archived.archive.segments[1]
    assert overlapping.base_offset < overlapping.start_offset
    restored = restore(store, disk)
    opened_log = opened(disk, restored)
    assert (restored.losses, opened_log.damage) == ((), [])
    assert content(opened_log, 0, restored.end) == content(log.log, 0, restored.end)
    aborted = opened_log.aborted(0, restored.end)
    assert aborted == [one for one in log.log.aborted(0, restored.end) if one in aborted]
    assert aborted
    for segment in opened_log.segments:
        assert segment.index.end == segment.size


def test_a_log_is_restored_from_s3_that_fails_many_requests(log: LogFixture, s3: FaultyS3, disk: SimulatedDisk) -> None:
    store = open_store(f"s3://{s3.bucket}/prefix", s3.credentials, backoff_s=0.001)
    s3.fail("PUT", Fault.RESET, Fault.SLOW_DOWN, None, Fault.RESET, Fault.SLOW_DOWN)
    archived = asyncio.run(ArchivedLog(store, log).upload())
    s3.fail("GET", *(Fault.SLOW_DOWN, Fault.CUT, Fault.RESET, None) * 3)
    restored = restore(store, disk)
    assert s3.faults == []
    assert (restored.losses, restored.end) == ((), archived.archive.end)
    assert content(opened(disk, restored), 0, restored.end) == content(log.log, 0, restored.end)


def test_what_is_there_is_not_downloaded_again(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk, tmp_path: Path
) -> None:
    restore(store, disk)
    for name, _ in archived.objects[:-1]:
        (tmp_path / "archive" / name).unlink()
    assert restore(store, disk).losses == ()


@pytest.mark.parametrize("deleted", [7, 100, 10_000])
def test_deleted_records_do_not_come_back(
    archived: ArchivedLog, store: ObstoreStore, disk: SimulatedDisk, deleted: int
) -> None:
    """DeleteRecords may end within a segment, and after all that is archived."""
    before = archived.archive
    after = without(before, min(deleted, (before.end or 0) - 1) if deleted < 10_000 else deleted, NO_LIMIT, 0)
    name = layout.commit_name(*PLACE, after.sequence)
    asyncio.run(store.put(name, commit_content(TOPIC_ID, 0, before, after)))
    restored = restore(store, disk)
    log, start = opened(disk, restored), after.start or deleted
    assert (restored.log_start, log.log_start, log.local_start) == (start, start, start)
    assert log.damage == []
    if after.segments:
        assert log.segments[0].base_offset < start < log.log_end
        assert next(iter(log.epochs)).offset == start
    else:
        assert log.log_end == deleted
