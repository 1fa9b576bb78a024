"""Share sessions: epochs, the memory that they take, and the connections to which they belong."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.resources.memory import SESSION_PARTITION_BYTES, MemoryPool
from cordwood.cluster.share.share_sessions import (
    EPOCH_MAX,
    FINAL_EPOCH,
    MemberKey,
    PartitionId,
    ShareSession,
    ShareSessions,
)
from cordwood.storage.steps import at_once

ONE, OTHER = MemberKey("g", "one"), MemberKey("g", "other")


def partitions(count: int, first: int = 0) -> list[PartitionId]:
    return [(UUID(int=1), index) for index in range(first, first + count)]


def sessions(partitions_max: int = 40, sessions_max: int = 2) -> tuple[ShareSessions, MemoryPool]:
    pool = MemoryPool("sessions", partitions_max * SESSION_PARTITION_BYTES)
    return ShareSessions(sessions_max, pool), pool


def opened(known: ShareSessions, key: MemberKey, owner: str, wanted: list[PartitionId]) -> ShareSession:
    """Open a session with these partitions."""
    session = known.open(key, owner)
    at_once(known.change(session, wanted))
    return session


def code_of(found: "pytest.ExceptionInfo[Refused]") -> ErrorCode:
    return found.value.code


def test_each_request_has_the_next_epoch() -> None:
    known, _ = sessions()
    session = opened(known, ONE, "connection", partitions(1))
    assert known.use(ONE, 1) is session
    assert known.use(ONE, 2) is session
    for epoch in (2, 4):
        with pytest.raises(Refused) as refused:
            known.use(ONE, epoch)
        assert code_of(refused) is ErrorCode.invalid_share_session_epoch
    session.epoch = EPOCH_MAX
    known.use(ONE, EPOCH_MAX)
    assert known.use(ONE, 1).epoch == 2
    assert known.use(ONE, FINAL_EPOCH) is session
    with pytest.raises(Refused) as refused:
        known.use(OTHER, 1)
    assert code_of(refused) is ErrorCode.share_session_not_found


def test_sessions_end_with_their_connection() -> None:
    known, pool = sessions()
    opened(known, ONE, "a", partitions(3))
    second = opened(known, OTHER, "b", partitions(2))
    replaced = opened(known, ONE, "b", partitions(1))
    assert known.end_of("a") == []
    assert known.end_of("b") == [second, replaced]
    assert (len(known), pool.used) == (0, 0)


def test_sessions_and_their_partitions_are_limited() -> None:
    known, pool = sessions()
    session = opened(known, ONE, "a", partitions(10))
    with pytest.raises(Refused) as refused:
        opened(known, OTHER, "b", partitions(11))
    assert code_of(refused) is ErrorCode.share_session_limit_reached, "a session has a share of the memory"
    opened(known, OTHER, "b", partitions(1))
    with pytest.raises(Refused):
        opened(known, MemberKey("g", "third"), "c", [])
    with pytest.raises(Refused):
        at_once(known.change(session, partitions(1, first=10), []))
    assert not known.is_open(session), "it has grown too large"
    assert pool.used == SESSION_PARTITION_BYTES


def test_partitions_are_added_and_forgotten() -> None:
    known, pool = sessions()
    session = opened(known, ONE, "a", partitions(3))
    at_once(known.change(session, partitions(2, first=2), partitions(1)))
    assert list(session.partitions) == partitions(3, first=1)
    assert pool.used == 3 * SESSION_PARTITION_BYTES
