"""Fetch by raw frames: records up to the high watermark, refusals, limits, and long polls."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from fetch_requests import READ_COMMITTED, READ_UNCOMMITTED, Session, fetch, fetch_one, fields, rows, send, wanted
from handlers_fixture import MB, OF_APPENDS, HandlersStory, Provocations, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from replica_fixture import ME, NOW_MS
from roles_fixture import TOPIC, stamped

from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.kafka.handlers import fetch as handler
from cordwood.replication.partition import Partition
from cordwood.storage.records import Record, encode

SIZE = len(batch_of("a"))
RACK = "east"
WAIT_MS = 500


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_every_version_gets_what_is_committed(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a", "b", "c")
        row = await fetch_one(broker, 1, version=version)
        assert (row.code, row.values, row.high_watermark) == (ErrorCode.none, [(1, "b"), (2, "c")], 3)
        assert row.log_start == (0 if version >= 5 else -1)

    tell(story)


@pytest.mark.parametrize("version", [17, 18])
def test_what_followers_of_kafka_say_about_themselves_is_passed_over(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a", "b")
        tagged = {"replica_directory_id": UUID(int=5), "high_watermark": 1}
        row = rows(await fetch(broker, {**wanted(1), **tagged}, version=version))[0]
        assert (row.code, row.values, row.high_watermark) == (ErrorCode.none, [(1, "b")], 2)

    tell(story)


def test_a_fetch_within_a_batch_returns_all_of_it() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        partition.append(encode([Record(0, NOW_MS, b"k", value.encode()) for value in "abc"]), NOW_MS)
        await broker.commit("d")
        assert (await fetch_one(broker, 2)).values == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]

    tell(story)


@pytest.mark.parametrize("version", [7, 12, 18])
@pytest.mark.parametrize("isolation", [-1, 2])
def test_an_unknown_isolation_level_is_refused(isolation: int, version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        response = await fetch(broker, wanted(), version=version, isolation=isolation)
        assert (response.error_code, response.responses) == (ErrorCode.invalid_request, ())

    tell(story)


def test_an_unknown_isolation_level_closes_the_connection_where_a_response_has_no_error_code() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.client.send(handler.KEY, 6, **fields([wanted()], isolation=2))
        await asyncio.sleep(0)
        assert not broker.client.is_open

    tell(story)


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_nothing_is_served_that_is_not_committed(isolation: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        await broker.commit("a", "b")
        assert (await fetch_one(broker, isolation=isolation)).values == []
        broker.report(1)
        row = await fetch_one(broker, isolation=isolation)
        assert (row.values, row.high_watermark) == ([(0, "a")], 1)
        assert (await fetch_one(broker, 1, isolation=isolation)).values == []

    tell(story)


def test_a_follower_serves_what_its_leader_said_is_committed() -> None:
    async def story(broker: HandlersStory) -> None:
        following = broker.begin_to_follow()
        data = stamped("a", 0, 1) + stamped("b", 1, 1) + stamped("c", 2, 1)
        following.replicate(data, 2, 0, NOW_MS)
        row = await fetch_one(broker, rack=RACK)
        assert (row.code, row.values, row.high_watermark) == (ErrorCode.none, [(0, "a"), (1, "b")], 2)
        assert (await fetch_one(broker, 2, rack=RACK)).values == []
        following.replicate(b"", 3, 0, NOW_MS)
        assert (await fetch_one(broker, 2, rack=RACK)).values == [(2, "c")]

    tell(story)


def test_a_follower_that_lags_has_a_reader_wait_who_is_ahead_of_it() -> None:
    async def story(broker: HandlersStory) -> None:
        following = broker.begin_to_follow()
        following.replicate(stamped("a", 0, 1), 1, 0, NOW_MS)
        row = await fetch_one(broker, 7, rack=RACK)
        assert (row.code, row.values) == (ErrorCode.none, [])

    tell(story)


def test_a_follower_begins_where_its_leader_does() -> None:
    async def story(broker: HandlersStory) -> None:
        following = broker.begin_to_follow()
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1), 2, 0, NOW_MS)
        following.replicate(b"", 2, 1, NOW_MS)
        assert (await fetch_one(broker, 0, rack=RACK)).code is ErrorCode.offset_out_of_range
        row = await fetch_one(broker, 1, rack=RACK)
        assert (row.values, row.log_start) == ([(1, "b")], 1)

    tell(story)


@pytest.mark.parametrize("version", [version for version in handler.KEY.versions if version >= 9])
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.none),
        (0, ErrorCode.fenced_leader_epoch),
        (4, ErrorCode.fenced_leader_epoch),
        (5, ErrorCode.none),
        (6, ErrorCode.unknown_leader_epoch),
    ],
)
def test_only_the_present_leader_epoch_is_served(version: int, epoch: int, code: ErrorCode) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(epoch=5)
        await broker.commit("a")
        row = await fetch_one(broker, epoch=epoch, version=version)
        assert (row.code, row.values) == (code, [] if code else [(0, "a")])
        assert row.high_watermark == (-1 if code else 1), "who is refused learns nothing of the log"

    tell(story)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_a_client_that_does_not_know_of_failed_disks_is_sent_to_another_leader(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect().directory.fail(OSError("the disk is gone"))
        code = ErrorCode.not_leader_or_follower if version < 6 else ErrorCode.kafka_storage_error
        assert (await fetch_one(broker, version=version)).code is code

    tell(story)


@pytest.mark.parametrize(("epoch", "code"), [(1, ErrorCode.fenced_leader_epoch), (3, ErrorCode.unknown_leader_epoch)])
def test_a_follower_serves_its_own_leader_epoch_only(epoch: int, code: ErrorCode) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.begin_to_follow(epoch=2)
        assert (await fetch_one(broker, epoch=epoch, rack=RACK)).code is code
        assert (await fetch_one(broker, epoch=2, rack=RACK)).code is ErrorCode.none

    tell(story)


def test_a_poll_of_a_leader_epoch_that_ends_is_fenced_at_once() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(epoch=5)
        polling = send(broker, wanted(epoch=5), wait_ms=WAIT_MS)
        await broker.turn()
        assert not polling.done()
        broker.elect(epoch=6)
        await broker.sync()
        assert rows(polling.result())[0].code is ErrorCode.fenced_leader_epoch

    tell(story)


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (-1, ErrorCode.offset_out_of_range),
        (1, ErrorCode.offset_out_of_range),
        (2, ErrorCode.none),
        (4, ErrorCode.none),
        (5, ErrorCode.none),
        (6, ErrorCode.offset_out_of_range),
    ],
)
def test_offsets_from_the_logs_start_to_its_end_are_in_range(offset: int, code: ErrorCode) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        await broker.commit("a", "b", "c", "d", "e")
        broker.report(4)
        partition.leader.delete_records(2)
        row = await fetch_one(broker, offset)
        assert row.code is code
        assert row.values == ([(2, "c"), (3, "d")] if offset == 2 else [])
        assert row.log_start == 2

    tell(story)


@pytest.mark.parametrize(
    ("bytes_max", "count"),
    [(-1, 1), (0, 1), (1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (3 * SIZE + 1, 3), (MB, 4)],
)
def test_a_partition_gives_whole_batches_within_its_limit_and_at_least_one(bytes_max: int, count: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a", "b", "c", "d")
        assert len((await fetch_one(broker, bytes_max=bytes_max)).values) == count
        # The same limit for the response as a whole.
        answered = rows(await fetch(broker, wanted(), bytes_max=bytes_max))
        assert len(answered[0].values) == count

    tell(story)


def test_all_partitions_share_the_answers_limit_and_only_the_first_may_exceed_it() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in range(3):
            broker.elect(index)
            await broker.commit("a", "b", index=index)
        partitions = [wanted(index=index) for index in range(3)]

        async def counts(bytes_max: int) -> list[int]:
            answered = rows(await fetch(broker, *partitions, bytes_max=bytes_max))
            return [len(answered[index].values) for index in range(3)]

        assert await counts(1) == [1, 0, 0]
        assert await counts(2 * SIZE) == [2, 0, 0]
        assert await counts(3 * SIZE - 1) == [2, 0, 0], "a batch that exceeds what is left is not the first"
        assert await counts(3 * SIZE) == [2, 1, 0]
        assert await counts(MB) == [2, 2, 2]

    tell(story)


def test_the_broker_has_a_limit_of_its_own_for_answers() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a", "b", "c")
        assert len((await fetch_one(broker)).values) == 2
        # A fetch does not wait for more bytes than the broker's limit allows.
        polling = send(broker, wanted(), wait_ms=WAIT_MS, bytes_min=MB)
        await broker.turn()
        assert polling.done()

    tell(story, response_bytes_max=2 * SIZE)


def test_a_poll_waits_for_as_many_bytes_as_it_wants() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in (0, 1):
            broker.elect(index)
        polling = send(broker, wanted(), wanted(index=1), wait_ms=WAIT_MS, bytes_min=2 * SIZE)
        await broker.commit("a")
        assert not polling.done()
        await broker.commit("b", index=1)
        assert polling.done()
        assert [row.values for row in rows(polling.result()).values()] == [[(0, "a")], [(0, "b")]]

    tell(story)


def test_a_poll_of_a_follower_hears_of_what_is_committed() -> None:
    async def story(broker: HandlersStory) -> None:
        following = broker.begin_to_follow()
        following.replicate(stamped("a", 0, 1), 0, 0, NOW_MS)
        polling = send(broker, wanted(), wait_ms=WAIT_MS, rack=RACK)
        await broker.turn()
        assert not polling.done()
        following.replicate(b"", 1, 0, NOW_MS)
        await broker.turn()
        assert rows(polling.result())[0].values == [(0, "a")]

    tell(story)


def test_a_poll_that_is_not_satisfied_ends_with_its_time() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a")
        loop = asyncio.get_running_loop()
        began = loop.time()
        row = await fetch_one(broker, wait_ms=WAIT_MS, bytes_min=2 * SIZE)
        assert row.values == [(0, "a")]
        assert loop.time() - began == pytest.approx(WAIT_MS / 1000)
        assert not broker.held().watchers, "no fetch is woken any more"

    tell(story)


def test_a_poll_without_partitions_is_answered_at_once() -> None:
    async def story(broker: HandlersStory) -> None:
        polling = send(broker, wait_ms=WAIT_MS)
        await broker.turn()
        assert polling.result().responses == ()

    tell(story)


def test_an_error_is_returned_at_once() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        polling = send(broker, wanted(), wanted(index=9), wait_ms=WAIT_MS)
        await broker.turn()
        answered = rows(polling.result())
        assert [(index, row.code) for index, row in answered.items()] == [
            (0, ErrorCode.none),
            (9, ErrorCode.unknown_topic_or_partition),
        ]

    tell(story)


def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a", "b", "c")
        response = await fetch(broker, wanted(0), wanted(2))
        assert [len(topic.partitions) for topic in response.responses] == [1]
        assert rows(response)[0].values == [(2, "c")]

    tell(story)


@pytest.mark.parametrize("values", [("a longer one", "e", "f"), ("d", "e")], ids=["elsewhere", "the same place"])
def test_what_was_cut_off_a_log_is_not_found_where_it_was(values: tuple[str, ...]) -> None:
    """Readers at the tail are served from cached positions and bytes; a truncation invalidates the cache."""

    async def story(broker: HandlersStory) -> None:
        following = broker.begin_to_follow(epoch=1)
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1) + stamped("c", 2, 1), 3, 0, NOW_MS)
        await broker.sync()
        for offset in (0, 2, 3, 1):
            await fetch_one(broker, offset, rack=RACK)
        await broker.truncate(following.partition, 1)
        following = broker.begin_to_follow(epoch=2)
        data = b"".join(stamped(value, offset, 2) for offset, value in enumerate(values, 1))
        following.replicate(data, 4, 0, NOW_MS)
        for offset, value in enumerate(values, 1):
            assert (await fetch_one(broker, offset, rack=RACK)).values[0] == (offset, value)
        assert (await fetch_one(broker, 0, rack=RACK)).values[0] == (0, "a")

    tell(story)


def test_two_readers_of_one_turn_get_the_same() -> None:
    """One read of the log serves both readers within an event-loop iteration, and no later reader."""

    async def story(broker: HandlersStory) -> None:
        broker.elect()
        first, second = (send(broker, wanted(), client=broker.connect(), wait_ms=WAIT_MS) for _ in range(2))
        await broker.commit("a")
        assert rows(first.result())[0].values == rows(second.result())[0].values == [(0, "a")]
        assert (await fetch_one(broker)).values == [(0, "a")]

    tell(story)


def test_a_client_in_another_rack_is_sent_to_its_nearest_replica() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a")
        broker.near[TOPIC, RACK, 0] = FOLLOWER
        row = await fetch_one(broker, rack=RACK, wait_ms=WAIT_MS)
        assert (row.code, row.values, row.preferred, row.high_watermark) == (ErrorCode.none, [], FOLLOWER, 1)
        for rack, offset in (("", 0), ("west", 0), (RACK, 1)):
            assert (await fetch_one(broker, offset, rack=rack)).preferred == -1

    tell(story)


@pytest.mark.parametrize("version", [version for version in handler.KEY.versions if version < 11])
def test_before_version_11_no_client_has_a_rack(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a")
        broker.near[TOPIC, RACK, 0] = FOLLOWER
        assert (await fetch_one(broker, rack=RACK, version=version)).values == [(0, "a")]

    tell(story)


def test_damage_in_one_partition_is_reported_for_that_one_alone() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in (0, 1):
            broker.elect(index)
            await broker.commit("a", index=index)
        broker.damage()
        reported: list[Partition] = []
        broker.held().context = replace(broker.held().context, found_damage=lambda held, _: reported.append(held))
        answered = rows(await fetch(broker, wanted(), wanted(index=1)))
        assert [(row.code, row.values) for row in answered.values()] == [
            (ErrorCode.corrupt_message, []),
            (ErrorCode.none, [(0, "a")]),
        ]
        assert set(reported) == {broker.held()}, "the replica is to be repaired"

    tell(story)


def test_a_range_that_the_disk_cannot_read_is_damage_of_that_partition_alone() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in (0, 1):
            broker.elect(index)
            await broker.commit("a", "b", index=index)
        partition = broker.partition(0)
        broker.disk.faults.fail_reads(partition.log.segments[0].path, 0, SIZE)
        for is_cold in (False, True, True):
            if is_cold:
                broker.disk.cool()
            answered = rows(await fetch(broker, wanted(), wanted(index=1)))
            assert [(row.code, row.values) for row in answered.values()] == [
                (ErrorCode.corrupt_message, []),
                (ErrorCode.none, [(0, "a"), (1, "b")]),
            ]
        assert broker.client.is_open
        assert broker.failed == []

    tell(story)


def test_a_leader_that_has_just_begun_does_not_say_that_there_is_nothing_more() -> None:
    """A new leader's high watermark may be below the one that its predecessor has shown to clients."""

    async def story(broker: HandlersStory) -> None:
        following = broker.begin_to_follow()
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1), 1, 0, NOW_MS)
        await broker.sync()
        broker.elect(epoch=2, isr=(ME, FOLLOWER))
        row = await fetch_one(broker, 0)
        assert (row.values, row.high_watermark) == ([(0, "a")], -1)
        assert (await fetch_one(broker, 1)).code is ErrorCode.offset_not_available
        broker.follow(end=2)
        row = await fetch_one(broker, 1)
        assert (row.values, row.high_watermark) == ([(1, "b")], 2)

    tell(story)


PROVOKED = Provocations(handler, never=OF_APPENDS | {ErrorCode.request_timed_out, ErrorCode.unknown_server_error})
"""A fetch appends nothing, waits for no replica, and every log error has a code of its own."""


@PROVOKED.of(ErrorCode.offset_out_of_range)
async def _beyond_the_end(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await fetch_one(broker, 1)).code


@PROVOKED.of(ErrorCode.corrupt_message)
async def _damaged(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    await broker.commit("a")
    broker.damage()
    return (await fetch_one(broker)).code


@PROVOKED.of(ErrorCode.unknown_topic_id)
async def _unknown_id(broker: HandlersStory) -> ErrorCode:
    return (await fetch_one(broker, topic_id=UUID(int=99), version=13)).code


@PROVOKED.of(ErrorCode.offset_not_available)
async def _just_elected(broker: HandlersStory) -> ErrorCode:
    broker.elect(isr=(ME, FOLLOWER))
    await broker.commit("a")
    broker.elect(epoch=2, isr=(ME, FOLLOWER))
    return (await fetch_one(broker)).code


@PROVOKED.of(ErrorCode.fetch_session_id_not_found)
async def _unknown_session(broker: HandlersStory) -> ErrorCode:
    code: ErrorCode = (await fetch(broker, session=(7, 1))).error_code
    return code


@PROVOKED.of(ErrorCode.invalid_fetch_session_epoch)
async def _wrong_session_epoch(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    session = Session(broker)
    await session.fetch(wanted())
    code: ErrorCode = (await fetch(broker, session=(session.id, session.epoch + 1))).error_code
    return code


@PROVOKED.of(ErrorCode.fetch_session_topic_id_error)
async def _ids_in_a_session_of_names(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    session = Session(broker)
    await session.fetch(wanted())
    code: ErrorCode = (await fetch(broker, wanted(), session=(session.id, session.epoch), version=13)).error_code
    return code


async def _place(broker: HandlersStory, topic: str, epoch: int) -> ErrorCode:
    return (await fetch_one(broker, topic=topic, epoch=epoch)).code


PROVOKED.of_places(_place)


@PROVOKED.of(ErrorCode.invalid_request)
async def _unknown_isolation_level(broker: HandlersStory) -> ErrorCode:
    code: ErrorCode = (await fetch(broker, wanted(), isolation=2)).error_code
    return code


def test_every_error_code_of_the_handler_is_provoked() -> None:
    PROVOKED.check_all()
