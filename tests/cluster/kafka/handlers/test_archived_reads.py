"""Fetch and ListOffsets of records that only the archive has, by raw frames."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from archive_fixture import CHUNK_BYTES, ArchiveFixture
from fetch_requests import READ_COMMITTED, READ_UNCOMMITTED, fetch, fetch_one, rows, send, wanted
from handlers_fixture import HandlersStory, tell
from kio.schema.errors import ErrorCode
from replica_fixture import NOW_MS
from roles_fixture import stamped
from transactions import decide, write

from cordwood.cluster.kafka.handlers import list_offsets
from cordwood.replication.partition import Partition
from cordwood.storage.batch import headers
from cordwood.storage.config import LogConfig
from cordwood.storage.producers import Producers
from cordwood.storage.records import Record, encode

SMALL = LogConfig(segment_bytes=4000, batch_bytes_max=64 * 1024, index_interval_bytes=300)
VALUES = [f"{number} {'x' * 100}" for number in range(100)]
WAIT_MS = 60_000
HELD_MS = 500
RATE = 500


async def archived(broker: HandlersStory, **options: int) -> tuple[ArchiveFixture, Partition]:
    """Return a partition with VALUES of which the disk has only the end, and its archive."""
    partition, archive = broker.elect(), connected(broker, **options)
    for number, value in enumerate(VALUES):
        partition.append(encode([Record(0, NOW_MS + number, b"k", value.encode())]), NOW_MS)
    await broker.sync()
    archive.archive(partition)
    assert archive.drop_local(partition) > 2
    assert partition.log.log_start == 0 < partition.log.local_start
    return archive, partition


def connected(broker: HandlersStory, **options: int) -> ArchiveFixture:
    archive = ArchiveFixture(**options)
    broker.services.archive = broker._fetching.archive = archive.reads
    return archive


async def read_all(broker: HandlersStory, offset: int = 0, **options: Any) -> list[tuple[int, str]]:
    """Return all records from `offset` on, as a polling consumer reads them."""
    found: list[tuple[int, str]] = []
    while offset < len(VALUES):
        row = await fetch_one(broker, offset, wait_ms=WAIT_MS, **options)
        assert (row.code, row.log_start) == (ErrorCode.none, 0)
        assert row.values, f"nothing at {offset}"
        found += [value for value in row.values if value[0] >= offset]
        offset = found[-1][0] + 1
    return found


async def offset_at(broker: HandlersStory, timestamp: int) -> int:
    response: Any = await broker.ask(
        list_offsets.KEY,
        list_offsets.KEY.versions[-1],
        replica_id=-1,
        isolation_level=READ_UNCOMMITTED,
        topics=(
            {
                "name": "t",
                "partitions": ({"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp},),
            },
        ),
    )
    row = response.topics[0].partitions[0]
    assert row.error_code is ErrorCode.none
    return int(row.offset)


def test_a_consumer_reads_through_the_archive_to_the_end() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, partition = await archived(broker)
        assert await read_all(broker) == list(enumerate(VALUES))
        assert archive.reads.downloaded_bytes == sum(
            len(archive.store.objects[name])
            for name, segment in zip(archive.names(), archive.archive(partition).segments, strict=True)
            if segment.end_offset <= partition.log.local_start
        )
        assert await read_all(broker, 7, bytes_max=1) == list(enumerate(VALUES))[7:]

    tell(story, SMALL)


def test_the_end_of_a_chunk_is_not_waited_at() -> None:
    async def story(broker: HandlersStory) -> None:
        await archived(broker)
        begin = asyncio.get_running_loop().time()
        assert await read_all(broker, bytes_min=100_000) == list(enumerate(VALUES))
        assert asyncio.get_running_loop().time() - begin < 2 * WAIT_MS / 1000

    tell(story, SMALL)


def test_many_readers_of_one_range_cause_one_download() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, _ = await archived(broker)
        archive.store.delay_s = 0.2
        clients = [broker.connect() for _ in range(20)]
        answers = await asyncio.gather(*(send(broker, wanted(), client=client, wait_ms=WAIT_MS) for client in clients))
        assert all(rows(answer)[0].values[0] == (0, VALUES[0]) for answer in answers)
        assert set(archive.store.reads.values()) == {1}

    tell(story, SMALL)


def test_downloads_keep_to_their_rate_and_delay_nobody_else() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, partition = await archived(broker, rate=RATE)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        first = await fetch_one(broker, wait_ms=WAIT_MS)
        cold = send(broker, wanted(first.values[-1][0] + 1), client=broker.connect(), wait_ms=WAIT_MS)
        asked_s = clock()
        row = await fetch_one(broker, partition.log.local_start, wait_ms=0)
        assert (row.values[0][0], clock() - asked_s) == (partition.log.local_start, 0)
        assert not cold.done()
        assert await read_all(broker) == list(enumerate(VALUES))
        # The last chunk is downloaded once those before it are paid, and what a second allows is there at first.
        least_s = (archive.reads.downloaded_bytes - CHUNK_BYTES) / RATE - 1
        assert least_s <= clock() - began_s <= least_s + 5

    tell(story, SMALL)


def test_one_partition_after_the_other_is_woken_as_the_rate_allows() -> None:
    """A Fetch of thousands of partitions would read all of them again for each chunk."""

    async def story(broker: HandlersStory) -> None:
        reads, woken = ArchiveFixture(rate=RATE).reads, list[int]()
        clock = asyncio.get_running_loop().time
        partitions = [broker.elect(index) for index in range(3)]

        def moved(index: int) -> None:
            woken.append(index)
            # It begins a download.
            reads._allowance.charge(RATE, clock())

        for index, partition in enumerate(partitions):
            scheduler = SimpleNamespace(moved=lambda _, index=index: moved(index))
            partition.context = replace(partition.context, end_of_tick=cast(Any, scheduler))
            if index != 1:
                partition.watchers[cast(Any, object())] = None
        for partition in partitions:
            reads._allowance.charge(RATE, clock())
            reads._wake_when_allowed(partition)
        debt_s = reads._allowance.debt_s(clock())
        assert debt_s > 1
        await asyncio.sleep(debt_s - 0.01)
        assert woken == []
        await asyncio.sleep(0.011)
        assert woken == [0]
        await asyncio.sleep(0.9)
        assert woken == [0]
        await asyncio.sleep(0.2)
        assert (woken, reads._over_rate) == ([0, 2], {})

    tell(story, SMALL)


def test_a_chunk_that_is_asked_for_comes_before_what_is_read_ahead() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, _ = await archived(broker, rate=1)
        assert (await fetch_one(broker, wait_ms=HELD_MS)).values[0] == (0, VALUES[0])
        assert [start for name, start in archive.store.reads if name.endswith(".log")] == [0]

    tell(story, SMALL)


def test_lookups_do_not_wait_for_the_rate_of_consumers() -> None:
    async def story(broker: HandlersStory) -> None:
        await archived(broker, rate=1)
        assert (await fetch_one(broker, wait_ms=HELD_MS)).values[0] == (0, VALUES[0])
        began_s = asyncio.get_running_loop().time()
        assert await offset_at(broker, NOW_MS + 40) == 40
        assert asyncio.get_running_loop().time() - began_s < 1

    tell(story, SMALL)


def test_a_slow_store_delays_only_those_who_read_there() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, partition = await archived(broker)
        archive.store.delay_s = 20
        cold = send(broker, wanted(), client=broker.connect(), wait_ms=WAIT_MS)
        row = await fetch_one(broker, partition.log.local_start, wait_ms=0)
        assert row.values[0][0] == partition.log.local_start
        broker.elect(1)
        await broker.commit("other", index=1)
        # A request for both is answered with what is there.
        response = await fetch(broker, wanted(), wanted(0, index=1), wait_ms=HELD_MS)
        assert {index: one.values for index, one in rows(response).items()} == {0: [], 1: [(0, "other")]}
        assert not cold.done()
        assert rows(await cold)[0].values[0] == (0, VALUES[0])

    tell(story, SMALL)


def test_a_store_that_is_down_gives_nothing_until_it_is_up_again() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, _ = await archived(broker)
        archive.store.is_down = True
        for _ in range(3):
            row = await fetch_one(broker, wait_ms=HELD_MS)
            assert (row.code, row.values) == (ErrorCode.none, [])
        archive.store.is_down = False
        await asyncio.sleep(2)
        assert await read_all(broker) == list(enumerate(VALUES))

    tell(story, SMALL)


def test_damaged_objects_are_never_served() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, _ = await archived(broker)
        name = archive.names()[0]
        sound = archive.store.objects[name]
        archive.store.objects[name] = sound[:50] + bytes([sound[50] ^ 1]) + sound[51:]
        assert (await fetch_one(broker, wait_ms=HELD_MS)).code is ErrorCode.kafka_storage_error
        archive.store.objects[name] = sound
        await asyncio.sleep(2)
        assert (await fetch_one(broker, wait_ms=HELD_MS)).values[0] == (0, VALUES[0])
        state = archive.names(".state")[1]
        whole, archive.store.objects[state] = archive.store.objects[state], b""
        second = next(iter(archive.image.archives.values())).segments[1].start_offset
        archive.reads._contents.clear()
        assert (await fetch_one(broker, second, wait_ms=HELD_MS)).code is ErrorCode.kafka_storage_error
        archive.store.objects[state] = whole
        await asyncio.sleep(2)
        assert (await fetch_one(broker, second, wait_ms=HELD_MS)).values[0][0] <= second

    tell(story, SMALL)


def test_a_lost_object_is_an_error_and_not_the_end() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, _ = await archived(broker)
        del archive.store.objects[archive.names()[0]]
        assert (await fetch_one(broker, wait_ms=HELD_MS)).code is ErrorCode.kafka_storage_error

    tell(story, SMALL)


def test_damage_of_the_cache_is_downloaded_again() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, _ = await archived(broker)
        assert (await fetch_one(broker, wait_ms=WAIT_MS)).values[0] == (0, VALUES[0])
        (entry,) = [entry for key, entry in archive.reads.cache._entries.items() if key.number == 0][:1]
        broker.disk.flip(f"{entry.written.directory}/{0:020d}-1.log", 50, 0)
        assert (await fetch_one(broker, 0, bytes_max=1, wait_ms=WAIT_MS)).values[0] == (0, VALUES[0])
        assert archive.store.reads[archive.names()[0], 0] == 2

    tell(story, SMALL)


def test_the_cache_is_bounded_and_a_reader_goes_on_after_its_chunk_is_removed() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, partition = await archived(broker, cache_bytes=3000)
        assert await read_all(broker, bytes_max=300) == list(enumerate(VALUES))
        assert archive.reads.cache.bytes_used <= 3000
        await asyncio.sleep(1)
        directory = f"{partition.directory.path}/archive-cache"
        assert len(broker.disk.list_directory(directory)) == len(archive.reads.cache)

    tell(story, SMALL)


def test_read_committed_lists_transactions_whose_markers_are_in_later_segments() -> None:
    async def story(broker: HandlersStory) -> None:
        partition, archive = broker.elect(), connected(broker)
        write(partition, "aborted " + "x" * 200, producer=1)
        write(partition, "committed", producer=2)
        for value in VALUES[:50]:
            await broker.commit(value)
        decide(partition, commit=False, producer=1)
        decide(partition, commit=True, producer=2)
        write(partition, "late", producer=3)
        for value in VALUES[50:]:
            await broker.commit(value)
        decide(partition, commit=False, producer=3)
        await broker.commit("end")
        archive.archive(partition)
        before = await transactions_in(broker, 0)
        late = partition.log.log_end - 3
        while late >= 0 and not await transactions_in(broker, late):
            late -= 1
        expected = {offset: await transactions_in(broker, offset) for offset in (0, 1, 30, 60, late)}
        archive.drop_local(partition)
        assert partition.log.local_start > 60
        assert before == [(1, 0)]
        assert {offset: await transactions_in(broker, offset) for offset in expected} == expected

    async def transactions_in(broker: HandlersStory, offset: int) -> list[tuple[int, int]]:
        asked = wanted(offset, bytes_max=1)
        response = await fetch(broker, asked, isolation=READ_COMMITTED, wait_ms=WAIT_MS)
        part = response.responses[0].partitions[0]
        return [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]

    tell(story, SMALL)


@pytest.mark.parametrize("has_others", [True, False])
def test_read_committed_waits_until_it_is_known_what_a_marker_here_ends(*, has_others: bool) -> None:
    async def story(broker: HandlersStory) -> None:
        partition, archive = broker.elect(), connected(broker)
        write(partition, "aborted " + "x" * 200, producer=1)
        for value in VALUES:
            await broker.commit(value)
        decide(partition, commit=False, producer=1)
        await broker.commit("end")
        archive.archive(partition)
        archive.drop_local(partition)
        log, known = partition.log, partition.log.producers
        assert log.local_start > 60
        log.lost_archived_producers()
        if not has_others:
            log.producers = Producers()
        local = log.local_start
        for isolation, offset in ((READ_COMMITTED, local), (READ_UNCOMMITTED, 0)):
            assert (await fetch_one(broker, offset, isolation=isolation, wait_ms=WAIT_MS)).values
        assert (await fetch_one(broker, 0, isolation=READ_COMMITTED, wait_ms=WAIT_MS)).values == []
        waiting = send(broker, wanted(0), isolation=READ_COMMITTED, wait_ms=WAIT_MS)
        await asyncio.sleep(1)
        log.unseen, log.producers = None, known
        partition.producers_replaced()
        assert rows(await waiting)[0].values

    tell(story, SMALL)


def test_offsets_by_time_are_found_in_the_archive() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, partition = await archived(broker)
        local = partition.log.local_start
        for number in (0, 1, 40, local - 1, local, len(VALUES) - 1):
            assert await offset_at(broker, NOW_MS + number) == number
        assert await offset_at(broker, NOW_MS + len(VALUES)) == -1
        assert await offset_at(broker, -2) == 0
        partition.append(encode([Record(0, NOW_MS - 5, b"k", b"old")]), NOW_MS)
        await broker.sync()
        assert await offset_at(broker, -3) == len(VALUES) - 1
        assert archive.reads.downloaded_bytes < partition.log.size * 3

    tell(story, SMALL)


def test_the_latest_record_by_time_may_be_in_the_archive() -> None:
    async def story(broker: HandlersStory) -> None:
        partition, archive = broker.elect(), connected(broker)
        for number, value in enumerate(VALUES):
            time = NOW_MS + (1000 if number == 11 else number)
            partition.append(encode([Record(0, time, b"k", value.encode())]), NOW_MS)
        await broker.sync()
        archive.archive(partition)
        archive.drop_local(partition)
        assert await offset_at(broker, -3) == 11

    tell(story, SMALL)


def test_gaps_of_a_compacted_log_are_passed_over() -> None:
    async def story(broker: HandlersStory) -> None:
        partition, archive = broker.elect(), connected(broker)
        step = 3
        data = b"".join(stamped(value, step * number + 1, 1) for number, value in enumerate(VALUES))
        partition.log.append_stamped(data, headers(data), NOW_MS)
        partition.schedule_flush()
        await broker.sync()
        archive.archive(partition)
        archive.drop_local(partition)
        assert partition.log.local_start > 100
        for offset in range(partition.log.local_start):
            row = await fetch_one(broker, offset, bytes_max=1, wait_ms=WAIT_MS)
            assert row.values[0][0] == offset - offset % step + 1 + (step if offset % step == 2 else 0)
        assert await offset_at(broker, NOW_MS) == 1

    tell(story, SMALL)


def test_without_an_archive_the_error_is_retriable() -> None:
    async def story(broker: HandlersStory) -> None:
        _, partition = await archived(broker)
        broker.services.archive = broker._fetching.archive = None
        assert (await fetch_one(broker, 0)).code is ErrorCode.kafka_storage_error
        assert (await fetch_one(broker, partition.log.local_start)).code is ErrorCode.none

    tell(story, SMALL)


def test_deleted_records_are_out_of_range_though_the_archive_has_them() -> None:
    async def story(broker: HandlersStory) -> None:
        archive, partition = await archived(broker)
        partition.leader.delete_records(10)
        assert (await fetch_one(broker, 9)).code is ErrorCode.offset_out_of_range
        row = await fetch_one(broker, 10, wait_ms=WAIT_MS)
        assert (row.log_start, row.values[0][1]) == (10, VALUES[row.values[0][0]])
        assert await offset_at(broker, NOW_MS) == 10
        # The manifest no longer has what this broker has not deleted yet.
        place, known = next(iter(archive.image.archives.items()))
        archive.image = replace(archive.image, archives={place: replace(known, segments=known.segments[1:])})
        assert (await fetch_one(broker, 10)).code is ErrorCode.kafka_storage_error

    tell(story, SMALL)
