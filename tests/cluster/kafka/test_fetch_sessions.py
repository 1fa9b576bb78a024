"""The fetch session cache (KIP-227): limits for a session, an address and the whole broker."""

import random
from dataclasses import dataclass

import pytest

from cordwood.cluster.kafka.fetch_sessions import (
    EPOCH_MAX,
    EVICT_AFTER_MS,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessions,
    PartitionKey,
    SessionNotFound,
    TopicsMixed,
    WrongSessionEpoch,
)
from cordwood.cluster.resources.memory import SESSION_PARTITION_BYTES, MemoryPool

PARTITIONS_MAX = 400
"""A quarter of it is the limit of one session, half of it that of one address."""


@dataclass(slots=True)
class Client:
    """A connection from an address."""

    client_host: str
    fetch_session: int = NO_SESSION


class SessionStory:
    """Clients that create sessions, by address."""

    def __init__(self, slots: int = 1000) -> None:
        self.pool = MemoryPool("fetch_sessions", PARTITIONS_MAX * SESSION_PARTITION_BYTES)
        self.sessions = FetchSessions(slots, self.pool, random.Random(1))
        self.now_ms = 0

    def begin(self, host: str, partitions: int, topic: str = "t") -> FetchSession | None:
        return self.sessions.create(Client(host), wanted(partitions, topic), self.now_ms, has_ids=False)

    def use(self, session: FetchSession, epoch: int = 1, *, has_ids: bool = False) -> FetchSession:
        return self.sessions.use(session.id, epoch, self.now_ms, has_ids=has_ids)

    @property
    def partitions(self) -> int:
        return self.pool.used // SESSION_PARTITION_BYTES


def wanted(partitions: int, topic: str = "t") -> list[tuple[PartitionKey, FetchedPartition]]:
    return [((topic, index), FetchedPartition(0, 1 << 20, -1)) for index in range(partitions)]


@pytest.fixture
def story() -> SessionStory:
    return SessionStory()


def test_one_session_has_at_most_a_fourth_of_all_partitions(story: SessionStory) -> None:
    assert story.begin("a", 101) is None
    assert story.begin("a", 100) is not None
    assert story.partitions == 100


def test_one_address_has_at_most_a_half_of_all_partitions(story: SessionStory) -> None:
    assert [story.begin("a", 100) is not None for _ in range(3)] == [True, True, False]
    assert story.begin("b", 100) is not None


def test_all_sessions_together_have_no_more_than_there_may_be(story: SessionStory) -> None:
    assert [story.begin(host, 100) is not None for host in "abcde"] == [True] * 4 + [False]
    assert story.partitions == PARTITIONS_MAX
    assert story.pool.waits == 1


def test_a_session_ends_with_its_connection(story: SessionStory) -> None:
    client = Client("a")
    session = story.sessions.create(client, wanted(100), 0, has_ids=False)
    assert session is not None
    assert client.fetch_session == session.id
    story.sessions.end(client.fetch_session)
    assert (len(story.sessions), story.partitions) == (0, 0)


def test_a_connection_has_one_session_at_a_time(story: SessionStory) -> None:
    client = Client("a")
    for _ in range(10):
        assert story.sessions.create(client, wanted(100), 0, has_ids=False) is not None
    assert (len(story.sessions), story.partitions) == (1, 100)


def test_a_session_that_was_not_used_for_two_minutes_makes_room(story: SessionStory) -> None:
    for host in "abcd":
        story.begin(host, 100)
    story.now_ms = EVICT_AFTER_MS - 1
    assert story.begin("e", 100) is None
    story.now_ms = EVICT_AFTER_MS
    assert story.begin("e", 100) is not None
    assert (len(story.sessions), story.partitions) == (4, PARTITIONS_MAX)
    assert story.pool.closes == 1


def test_a_session_that_was_used_meanwhile_stays(story: SessionStory) -> None:
    sessions = [story.begin(host, 100) for host in "abcd"]
    story.now_ms = EVICT_AFTER_MS - 1
    for session in sessions:
        assert session is not None
        story.use(session)
    story.now_ms = EVICT_AFTER_MS
    assert story.begin("e", 100) is None


def test_the_session_that_was_not_used_for_longest_makes_room(story: SessionStory) -> None:
    first, second, *_ = (story.begin(host, 100) for host in "abcd")
    assert first is not None
    assert second is not None
    story.now_ms = EVICT_AFTER_MS - 1
    story.use(first, 1)
    story.now_ms = EVICT_AFTER_MS
    assert story.begin("e", 100) is not None
    story.use(first, 2)
    with pytest.raises(SessionNotFound):
        story.use(second, 1)


def test_one_that_may_not_be_at_all_takes_no_others_room(story: SessionStory) -> None:
    for host in "abcd":
        story.begin(host, 100)
    story.now_ms = EVICT_AFTER_MS
    assert story.begin("e", 101) is None
    assert len(story.sessions) == 4


def test_a_session_that_grows_beyond_its_share_ends(story: SessionStory) -> None:
    session = story.begin("a", 60)
    assert session is not None
    story.sessions.change(session, wanted(40, "more"), ())
    with pytest.raises(SessionNotFound):
        story.sessions.change(session, wanted(1, "one more"), ())
    assert story.partitions == 0
    with pytest.raises(SessionNotFound):
        story.use(session)


def test_partitions_that_are_forgotten_count_no_more(story: SessionStory) -> None:
    session = story.begin("a", 60)
    assert session is not None
    story.sessions.change(session, wanted(10, "more"), [("t", index) for index in range(50)])
    assert story.partitions == 20


def test_topics_that_cannot_exist_begin_no_session(story: SessionStory) -> None:
    assert story.begin("a", 1, "x" * 249) is not None
    assert story.begin("a", 1, "x" * 250) is None


def test_there_are_no_more_sessions_than_slots() -> None:
    story = SessionStory(slots=2)
    assert [story.begin("a", 1) is not None for _ in range(3)] == [True, True, False]


def test_a_request_counts_its_sessions_requests(story: SessionStory) -> None:
    session = story.begin("a", 1)
    assert session is not None
    assert story.use(session) is session
    with pytest.raises(WrongSessionEpoch):
        story.use(session)


def test_behind_the_last_epoch_comes_the_first(story: SessionStory) -> None:
    session = story.begin("a", 1)
    assert session is not None
    session.epoch = EPOCH_MAX
    assert story.use(session, EPOCH_MAX).epoch == 1


def test_a_session_has_names_of_topics_or_ids(story: SessionStory) -> None:
    session = story.begin("a", 1)
    assert session is not None
    with pytest.raises(TopicsMixed):
        story.use(session, has_ids=True)
    assert story.use(session) is session
