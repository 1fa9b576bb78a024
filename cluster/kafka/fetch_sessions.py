"""Incremental fetch sessions (KIP-227): a cache bounded by sessions and by cached partitions."""

import random
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from cordwood.cluster.kafka.wire import Topic
from cordwood.cluster.resources.memory import SESSION_PARTITION_BYTES, MemoryPool

NO_SESSION = 0
FULL_EPOCH, INITIAL_EPOCH = -1, 0
EPOCH_MAX = 0x7FFFFFFF
EVICT_AFTER_MS = 120_000
TOPIC_NAME_CHARS_MAX = 249
"""Maximum length of a topic name, as in Kafka."""
SESSION_SHARE, ADDRESS_SHARE = 4, 2
"""One session may have 1/4 of all cached partitions; all sessions of one client address may have 1/2."""

PartitionKey = tuple[Topic, int]


@dataclass(slots=True)
class FetchedPartition:
    """One partition of a session: the client's fetch position, and the last state sent to it."""

    offset: int
    bytes_max: int
    leader_epoch: int
    high_watermark: int = -1
    log_start: int = -1


class SessionOwner(Protocol):
    """The connection that created a session. It has at most one session, which ends with the connection."""

    client_host: str
    fetch_session: int


@dataclass(slots=True)
class FetchSession:
    """One client's partitions in the order of service: a partition that got data moves to the end."""

    id: int
    host: str
    has_ids: bool
    """Whether its topics are ids (KIP-516), not names. Its requests and responses are all of one kind."""
    epoch: int
    last_used_ms: int
    partitions: OrderedDict[PartitionKey, FetchedPartition] = field(default_factory=OrderedDict)


class SessionNotFound(Exception):
    """The session id is unknown or evicted (FETCH_SESSION_ID_NOT_FOUND)."""


class WrongSessionEpoch(Exception):
    """The session epoch is not the expected one (INVALID_FETCH_SESSION_EPOCH)."""


class TopicsMixed(Exception):
    """A request has ids of topics, and the session names, or the reverse (FETCH_SESSION_TOPIC_ID_ERROR)."""


class FetchSessions:
    """The cache of at most `slots` sessions, with as many partitions as `pool` has room for.

    A new session evicts the least recently used ones, if they have been unused for EVICT_AFTER_MS. A client whose
    session is refused or evicted fetches without a session, or creates another.
    """

    def __init__(self, slots: int, pool: MemoryPool, rng: random.Random) -> None:
        self._slots, self._pool, self._rng = slots, pool, rng
        self._partitions_max = pool.limit // SESSION_PARTITION_BYTES // SESSION_SHARE
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._used_by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self,
        owner: SessionOwner,
        wanted: Iterable[tuple[PartitionKey, FetchedPartition]],
        now_ms: int,
        *,
        has_ids: bool,
    ) -> FetchSession | None:
        """Create a session that replaces the owner's previous one. Return None if there is no room."""
        self.end(owner.fetch_session)
        partitions = OrderedDict(wanted)
        if _has_long_names(partitions) or not self._make_room(owner.client_host, len(partitions), now_ms):
            self._pool.waits += 1
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randint(1, EPOCH_MAX)
        session = FetchSession(session_id, owner.client_host, has_ids, 1, now_ms, partitions)
        self._sessions[session_id] = session
        self._count(session, len(partitions))
        owner.fetch_session = session_id
        return session

    def use(self, session_id: int, epoch: int, now_ms: int, *, has_ids: bool) -> FetchSession:
        """Return a session and advance its epoch. Raises SessionNotFound, WrongSessionEpoch or TopicsMixed."""
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound
        if session.epoch != epoch:
            raise WrongSessionEpoch
        if session.has_ids != has_ids:
            raise TopicsMixed
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def change(
        self,
        session: FetchSession,
        updated: Iterable[tuple[PartitionKey, FetchedPartition]],
        forgotten: Iterable[PartitionKey],
    ) -> None:
        """Update and forget partitions of a session. Raises SessionNotFound if it grew too large and was ended."""
        partitions = session.partitions
        before = len(partitions)
        for key, wanted in updated:
            known = partitions.get(key)
            if known is None:
                partitions[key] = wanted
            else:
                known.offset, known.bytes_max, known.leader_epoch = wanted.offset, wanted.bytes_max, wanted.leader_epoch
        for key in forgotten:
            partitions.pop(key, None)
        added = len(partitions) - before
        self._count(session, added)
        if added > 0 and (_has_long_names(partitions) or not self._is_within_bounds(session.host, len(partitions), 0)):
            self._pool.closes += 1
            self.end(session.id)
            raise SessionNotFound

    def end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._count(session, -len(session.partitions))

    def give_back(self) -> None:
        """Evict the least recently used session if the pool exceeds its own share: other pools lack memory."""
        if self._sessions and self._pool.used > self._pool.own:
            self._pool.closes += 1
            self.end(next(iter(self._sessions)))

    def size_of(self, session_id: int) -> int:
        """Return the bytes counted for a session's partitions; 0 for an unknown session."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions) * SESSION_PARTITION_BYTES

    def _make_room(self, host: str, partitions: int, now_ms: int) -> bool:
        """Evict unused sessions until there is room for another. Return False if there is none."""
        if partitions > self._partitions_max:
            return False
        while len(self._sessions) >= self._slots or not self._is_within_bounds(host, partitions, partitions):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICT_AFTER_MS:
                return False
            self._pool.closes += 1
            self.end(oldest.id)
        return True

    def _is_within_bounds(self, host: str, partitions: int, added: int) -> bool:
        """Whether a session of `partitions`, `added` of them not counted yet, is within its shares and the pool."""
        limit, size = self._pool.limit, added * SESSION_PARTITION_BYTES
        return (
            partitions <= self._partitions_max
            and self._used_by_host[host] + size <= limit // ADDRESS_SHARE
            and self._pool.has_room(size)
        )

    def _count(self, session: FetchSession, partitions: int) -> None:
        size = partitions * SESSION_PARTITION_BYTES
        self._pool.used += size
        self._used_by_host[session.host] += size
        if not self._used_by_host[session.host]:
            del self._used_by_host[session.host]


def _has_long_names(partitions: Iterable[PartitionKey]) -> bool:
    """Whether a topic name is too long to exist, and so exceeds the memory counted for a partition."""
    return any(isinstance(topic, str) and len(topic) > TOPIC_NAME_CHARS_MAX for topic, _ in partitions)
