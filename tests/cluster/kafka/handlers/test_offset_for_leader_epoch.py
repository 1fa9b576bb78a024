"""OffsetForLeaderEpoch by raw frames: the end offset of each leader epoch of a log, and refusals."""

from typing import Any, NamedTuple

import pytest
from handlers_fixture import OF_APPENDS, HandlersStory, Provocations, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from replica_fixture import ME, NOW_MS
from roles_fixture import stamped

from cordwood.cluster.kafka.handlers import offset_for_leader_epoch as handler

UNDEFINED = -1
NOT_KNOWN = (UNDEFINED, UNDEFINED)


class Row(NamedTuple):
    """One partition's part of a response."""

    code: ErrorCode
    epoch: int
    end: int


async def ask(
    broker: HandlersStory, epoch: int, *, current: int = -1, version: int = 4, topic: str = "t", index: int = 0
) -> Row:
    wanted = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
    response: Any = await broker.ask(handler.KEY, version, topics=({"topic": topic, "partitions": (wanted,)},))
    ((row,),) = [answered.partitions for answered in response.topics]
    return Row(row.error_code, row.leader_epoch, row.end_offset)


async def with_history(broker: HandlersStory) -> None:
    """Lead in epoch 9 with offsets 6 and 7; epoch 2 has offsets 0 to 2, epoch 5 has 3 and 4, epoch 6 has 5."""
    following = broker.begin_to_follow(epoch=6)
    for offset, epoch in enumerate((2, 2, 2, 5, 5, 6)):
        following.replicate(stamped("v", offset, epoch), 0, 0, NOW_MS)
    await broker.sync()
    broker.elect(epoch=9)
    await broker.commit("v", "v")


@pytest.mark.parametrize("version", handler.KEY.versions)
@pytest.mark.parametrize(
    ("epoch", "reported"),
    [
        pytest.param(2, (2, 3), id="the first"),
        pytest.param(3, (2, 3), id="one without records, after the first"),
        pytest.param(4, (2, 3), id="one without records, before the second"),
        pytest.param(5, (5, 5), id="the second"),
        pytest.param(6, (6, 6), id="the last before this leader's"),
        pytest.param(8, (6, 6), id="one without records, before this leader's"),
        pytest.param(9, (9, 8), id="this leader's: its log's end"),
        pytest.param(10, NOT_KNOWN, id="the next one, which has no leader yet"),
        pytest.param(1 << 30, NOT_KNOWN, id="a far one"),
        pytest.param(UNDEFINED, NOT_KNOWN, id="none"),
        pytest.param(1, (1, 0), id="one before all records: it ends where they begin"),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(version: int, epoch: int, reported: tuple[int, int]) -> None:
    async def story(broker: HandlersStory) -> None:
        await with_history(broker)
        assert await ask(broker, epoch, version=version) == (ErrorCode.none, *reported)

    tell(story)


def test_an_epoch_whose_records_are_deleted_ends_where_the_log_begins() -> None:
    """A consumer that has read the whole epoch resumes there. Without an end it would start over or fail."""

    async def story(broker: HandlersStory) -> None:
        await with_history(broker)
        broker.held().leader.delete_records(3)
        assert await ask(broker, 2) == (ErrorCode.none, 2, 3)
        assert await ask(broker, 4) == (ErrorCode.none, 4, 3)
        assert await ask(broker, 5) == (ErrorCode.none, 5, 5)
        broker.held().leader.delete_records(4)
        assert await ask(broker, 2) == (ErrorCode.none, 2, 4)
        assert await ask(broker, 5) == (ErrorCode.none, 5, 5), "a part of it is left"
        broker.held().leader.delete_records(8)
        assert await ask(broker, 6) == (ErrorCode.none, 6, 8)
        assert await ask(broker, 9) == (ErrorCode.none, 9, 8)

    tell(story)


def test_a_log_without_records_ends_every_epoch_at_its_start() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(epoch=3)
        assert await ask(broker, 3) == (ErrorCode.none, 3, 0)
        assert await ask(broker, 2) == (ErrorCode.none, 2, 0)
        assert await ask(broker, 4) == (ErrorCode.none, *NOT_KNOWN)

    tell(story)


def test_a_leader_that_has_written_nothing_answers_for_earlier_epochs() -> None:
    async def story(broker: HandlersStory) -> None:
        await with_history(broker)
        broker.elect(epoch=12)
        assert await ask(broker, 9) == (ErrorCode.none, 9, 8)
        assert await ask(broker, 11) == (ErrorCode.none, 9, 8)
        assert await ask(broker, 12) == (ErrorCode.none, 12, 8)
        assert await ask(broker, 13) == (ErrorCode.none, *NOT_KNOWN)

    tell(story)


def test_an_epoch_that_is_truncated_is_no_longer_returned() -> None:
    async def story(broker: HandlersStory) -> None:
        await with_history(broker)
        following = broker.begin_to_follow(epoch=10)
        await broker.truncate(following.partition, 4)
        following.replicate(stamped("v", 4, 10), 0, 0, NOW_MS)
        broker.elect(epoch=11)
        assert await ask(broker, 5) == (ErrorCode.none, 5, 4)
        assert await ask(broker, 9) == (ErrorCode.none, 5, 4)
        assert await ask(broker, 10) == (ErrorCode.none, 10, 5)

    tell(story)


def test_what_is_not_committed_belongs_to_its_epoch() -> None:
    """A new leader does not know its high watermark yet: an end limited by it would be below its readers' positions."""

    async def story(broker: HandlersStory) -> None:
        broker.elect(epoch=2, isr=(ME, FOLLOWER))
        await broker.commit("v", "v")
        assert await ask(broker, 2) == (ErrorCode.none, 2, 2)
        broker.elect(epoch=3, isr=(ME, FOLLOWER))
        assert await ask(broker, 2) == (ErrorCode.none, 2, 2)

    tell(story)


@pytest.mark.parametrize("version", handler.KEY.versions)
@pytest.mark.parametrize(
    ("current", "code"),
    [
        (-1, ErrorCode.none),
        (8, ErrorCode.fenced_leader_epoch),
        (9, ErrorCode.none),
        (10, ErrorCode.unknown_leader_epoch),
    ],
)
def test_only_the_present_leader_epoch_gets_an_answer(version: int, current: int, code: ErrorCode) -> None:
    async def story(broker: HandlersStory) -> None:
        await with_history(broker)
        expected = (code, *NOT_KNOWN) if code else (code, 2, 3)
        assert await ask(broker, 2, current=current, version=version) == expected

    tell(story)


PROVOKED = Provocations(
    handler,
    never=OF_APPENDS
    | {
        ErrorCode.corrupt_message,
        ErrorCode.offset_out_of_range,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_id,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
    },
)
"""No offset is requested, no batch is read or appended, topics go by name, and there is no wait."""


async def _place(broker: HandlersStory, topic: str, epoch: int) -> ErrorCode:
    return (await ask(broker, 0, topic=topic, current=epoch)).code


PROVOKED.of_places(_place)


def test_every_error_code_of_the_handler_is_provoked() -> None:
    PROVOKED.check_all()
