"""Fetch sessions by raw frames: incremental responses, forgotten partitions, session epochs, and refusals (KIP-227)."""

import pytest
from fetch_requests import FULL, INITIAL, NAMED, NO_SESSION, Row, Session, fetch, fields, rows, wanted
from handlers_fixture import SESSION_PARTITIONS_MAX, HandlersStory, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from roles_fixture import TOPIC

from cordwood.cluster.kafka.handlers import fetch as handler


def test_a_session_returns_only_what_has_changed() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in range(3):
            broker.elect(index)
        session = Session(broker)
        assert set(await session.fetch(*(wanted(index=index) for index in range(3)))) == {0, 1, 2}
        assert session.id != NO_SESSION
        assert await session.fetch() == {}
        await broker.commit("a", index=1)
        assert await session.fetch() == {1: Row(ErrorCode.none, [(0, "a")], 1, 0, -1)}
        assert (await session.fetch())[1].values == [(0, "a")], "the client says itself how far it is"
        assert await session.fetch(wanted(1, index=1)) == {}
        broker.held(1).leader.delete_records(1)
        assert await session.fetch() == {1: Row(ErrorCode.none, [], 1, 1, -1)}
        assert await session.fetch() == {}

    tell(story)


def test_a_session_returns_a_high_watermark_without_records() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.append("a")
        session = Session(broker)
        assert (await session.fetch(wanted(1)))[0].high_watermark == 0
        await broker.sync()
        assert await session.fetch() == {0: Row(ErrorCode.none, [], 1, 0, -1)}
        assert await session.fetch() == {}

    tell(story)


def test_a_session_returns_an_error_and_its_end() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(0)
        session = Session(broker)
        first = await session.fetch(wanted(), wanted(index=1))
        assert [row.code for row in first.values()] == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        again = await session.fetch()
        assert {index: row.code for index, row in again.items()} == {1: ErrorCode.unknown_topic_or_partition}
        broker.elect(1)
        assert {index: row.code for index, row in (await session.fetch()).items()} == {1: ErrorCode.none}
        assert await session.fetch() == {}

    tell(story)


def test_a_session_returns_the_end_of_an_error_about_an_offset() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        session = Session(broker)
        assert (await session.fetch(wanted(7)))[0].code is ErrorCode.offset_out_of_range
        assert await session.fetch(wanted(0)) == {0: Row(ErrorCode.none, [], 0, 0, -1)}
        assert await session.fetch() == {}

    tell(story)


def test_a_session_forgets_what_its_client_no_longer_wants() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in (0, 1):
            broker.elect(index)
        session = Session(broker)
        await session.fetch(wanted(), wanted(index=1))
        await session.fetch(forgotten=[1])
        await broker.commit("a")
        await broker.commit("b", index=1)
        assert list(await session.fetch()) == [0]
        assert list(await session.fetch(wanted(index=1), forgotten=[0])) == [1]

    tell(story)


def test_a_session_ends_with_its_last_partition() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a")
        session = Session(broker)
        await session.fetch(wanted())
        ended, epoch = session.id, session.epoch
        assert await session.fetch(forgotten=[0]) == {}
        assert (session.id, len(broker.sessions)) == (NO_SESSION, 0)
        again = await fetch(broker, wanted(), session=(ended, epoch + 1))
        assert again.error_code is ErrorCode.fetch_session_id_not_found
        begun = Session(broker)
        await begun.fetch(wanted())
        added = await begun.fetch(wanted(index=1), forgotten=[0, 1])
        assert (list(added), begun.id) == ([1], NO_SESSION), "what it names is answered once more"

    tell(story)


def test_in_a_session_the_leader_epoch_of_each_partition_is_checked_every_time() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(epoch=5)
        session = Session(broker)
        await session.fetch(wanted(epoch=5))
        broker.elect(epoch=6)
        assert [row.code for row in (await session.fetch()).values()] == [ErrorCode.fenced_leader_epoch]
        assert [row.code for row in (await session.fetch(wanted(epoch=6))).values()] == [ErrorCode.none]

    tell(story)


def test_within_a_session_who_got_data_goes_last() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in range(3):
            broker.elect(index)
            await broker.commit("a", index=index)
        client = broker.connect()
        session, given = Session(broker, client), []
        for _ in range(3):
            response = await client.send(
                handler.KEY,
                NAMED,
                **fields(
                    [wanted(index=index) for index in range(3)] if not session.id else [],
                    session=(session.id, session.epoch),
                    bytes_max=1,
                ),
            )
            session.id, session.epoch = response.session_id, session.epoch + 1
            given += [index for index, row in rows(response).items() if row.values]
        assert given == [0, 1, 2]

    tell(story)


@pytest.mark.parametrize("epoch", [2, 3, 1000])
def test_a_session_counts_its_requests(epoch: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        session = Session(broker)
        await session.fetch(wanted())
        refused = await fetch(broker, session=(session.id, epoch))
        assert refused.error_code is ErrorCode.invalid_fetch_session_epoch
        assert (refused.session_id, refused.responses) == (NO_SESSION, ())
        assert await session.fetch() == {}, "the session has not noticed"

    tell(story)


def test_a_request_that_is_sent_twice_is_refused() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        session = Session(broker)
        await session.fetch(wanted())
        await session.fetch()
        refused = await fetch(broker, session=(session.id, session.epoch - 1))
        assert refused.error_code is ErrorCode.invalid_fetch_session_epoch

    tell(story)


@pytest.mark.parametrize("end", [FULL, INITIAL])
def test_a_client_ends_its_session_by_a_full_fetch(end: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        session = Session(broker)
        await session.fetch(wanted())
        full = await fetch(broker, wanted(), session=(session.id, end))
        assert set(rows(full)) == {0}
        assert (full.session_id == NO_SESSION) == (end == FULL)
        assert len(broker.sessions) == (0 if end == FULL else 1)
        gone = await fetch(broker, session=(session.id, session.epoch))
        assert gone.error_code is ErrorCode.fetch_session_id_not_found

    tell(story)


def test_a_session_names_the_nearest_replica_each_time() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        await broker.commit("a")
        broker.near[TOPIC, "east", 0] = FOLLOWER
        first = await fetch(broker, wanted(), session=(NO_SESSION, INITIAL), rack="east")
        again = await fetch(broker, session=(first.session_id, INITIAL + 1), rack="east")
        assert [rows(answer)[0].preferred for answer in (first, again)] == [FOLLOWER, FOLLOWER]

    tell(story)


def test_a_client_that_connects_again_ends_its_former_session() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        session = Session(broker)
        await session.fetch(wanted())
        again = Session(broker, broker.connect())
        again.id = session.id
        await again.fetch(wanted())
        assert (again.id != session.id, len(broker.sessions)) == (True, 1)

    tell(story)


def test_where_there_is_no_room_for_a_session_everything_is_returned_without_one() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        first = Session(broker, broker.connect())
        await first.fetch(wanted())
        second = await fetch(broker, wanted(), session=(NO_SESSION, INITIAL))
        assert (second.session_id, set(rows(second))) == (NO_SESSION, {0})

    tell(story, sessions=1)


def test_a_session_that_grows_too_large_is_ended() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        session = Session(broker)
        await session.fetch(wanted())
        refused = await fetch(
            broker,
            *(wanted(index=index) for index in range(SESSION_PARTITIONS_MAX + 1)),
            session=(session.id, session.epoch),
        )
        assert refused.error_code is ErrorCode.fetch_session_id_not_found
        assert len(broker.sessions) == 0

    tell(story)


@pytest.mark.parametrize("version", [version for version in handler.KEY.versions if version >= 7])
def test_the_errors_of_sessions_are_returned_in_every_version(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        response = await fetch(broker, session=(7, 1), version=version)
        assert response.error_code is ErrorCode.fetch_session_id_not_found

    tell(story)
