"""Share sessions of one broker: which partitions a member fetches, and the epoch of its next request.

A session belongs to the connection that opened it, and ends with it. All sessions share the memory of fetch sessions.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.resources.memory import SESSION_PARTITION_BYTES, MemoryPool
from cordwood.storage.steps import Steps

FINAL_EPOCH, INITIAL_EPOCH = -1, 0
EPOCH_MAX = 0x7FFFFFFF
SESSION_SHARE = 4
"""One session may have 1/4 of the partitions of all sessions."""

PartitionId = tuple[UUID, int]


class MemberKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """One member's partitions at this broker."""

    key: MemberKey
    owner: Hashable
    """The connection that opened the session."""
    epoch: int = 1
    """The epoch of the next request."""
    partitions: dict[PartitionId, bool] = field(default_factory=dict)
    """Each with whether the next response must have it: it is new, or its last row had an error."""
    turn: int = 0
    """The number of the next fetch. The epoch is no such number: acknowledgements raise it too."""

    def in_turn(self) -> list[PartitionId]:
        """Return the partitions for one fetch. Each fetch begins with another one, so that none starves the others."""
        wanted = list(self.partitions)
        if wanted:
            first = self.turn % len(wanted)
            wanted = wanted[first:] + wanted[:first]
        self.turn += 1
        return wanted


class ShareSessions:
    """All sessions, at most `sessions_max`, with as many partitions as `pool` has room for."""

    def __init__(self, sessions_max: int, pool: MemoryPool) -> None:
        self._sessions_max, self._pool = sessions_max, pool
        self._partitions_max = pool.limit // SESSION_PARTITION_BYTES // SESSION_SHARE
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._by_owner: dict[Hashable, dict[MemberKey, None]] = {}
        self._by_group: Counter[str] = Counter()
        self._opened = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: MemberKey, owner: Hashable) -> ShareSession:
        """Open a session without partitions, in place of the member's former one.

        Acquired records stay with the member, which may still acknowledge them. Raises
        Refused(SHARE_SESSION_LIMIT_REACHED).
        """
        self.end(key)
        if len(self._sessions) >= self._sessions_max:
            self._pool.waits += 1
            raise Refused(ErrorCode.share_session_limit_reached)
        # The members of a group begin with different partitions.
        session = self._sessions[key] = ShareSession(key, owner, turn=self._opened)
        self._opened += 1
        self._by_group[key.group_id] += 1
        self._by_owner.setdefault(owner, {})[key] = None
        return session

    def use(self, key: MemberKey, epoch: int) -> ShareSession:
        """Return a member's session for a request with that epoch.

        Raises Refused: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get(key)
        if session is None:
            raise Refused(ErrorCode.share_session_not_found)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise Refused(ErrorCode.invalid_share_session_epoch)
            session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def change(
        self, session: ShareSession, added: Iterable[PartitionId], forgotten: Iterable[PartitionId] = ()
    ) -> Steps[None]:
        """Forget partitions of a session, and add others that are not among these, in steps.

        Raises Refused: SHARE_SESSION_LIMIT_REACHED, and SHARE_SESSION_NOT_FOUND if the session ends meanwhile.
        """
        partitions = session.partitions
        gone: set[PartitionId] = set()
        for partition in forgotten:
            self._check_open(session)
            gone.add(partition)
            if partitions.pop(partition, None) is not None:
                self._count(-1)
            yield
        for partition in added:
            self._check_open(session)
            if partition not in partitions and partition not in gone:
                if not self._has_room(len(partitions) + 1, 1):
                    self._pool.closes += 1
                    self.end(session.key)
                    raise Refused(ErrorCode.share_session_limit_reached)
                partitions[partition] = True
                self._count(1)
            yield

    def end(self, key: MemberKey) -> ShareSession | None:
        """End a member's session. Return it, if there was one."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._count(-len(session.partitions))
            self._by_group[key.group_id] -= 1
            if not self._by_group[key.group_id]:
                del self._by_group[key.group_id]
            others = self._by_owner[session.owner]
            del others[key]
            if not others:
                del self._by_owner[session.owner]
        return session

    def count_of(self, group_id: str) -> int:
        """Return the number of sessions of a group."""
        return self._by_group[group_id]

    def end_of(self, owner: Hashable) -> list[ShareSession]:
        """End all sessions that a connection has opened, and return them."""
        ended = (self.end(key) for key in list(self._by_owner.get(owner, ())))
        return [session for session in ended if session is not None]

    def is_open(self, session: ShareSession) -> bool:
        """Return whether a session has not ended since."""
        return self._sessions.get(session.key) is session

    def _check_open(self, session: ShareSession) -> None:
        if not self.is_open(session):
            raise Refused(ErrorCode.share_session_not_found)

    def _has_room(self, partitions: int, added: int) -> bool:
        return partitions <= self._partitions_max and self._pool.has_room(added * SESSION_PARTITION_BYTES)

    def _count(self, partitions: int) -> None:
        self._pool.used += partitions * SESSION_PARTITION_BYTES
