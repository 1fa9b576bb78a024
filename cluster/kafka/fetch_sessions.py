"""Incremental fetch sessions: what a client fetches is remembered, so that it sends only changes (KIP-227). Bounded."""

import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

NO_SESSION = 0
FULL_EPOCH, INITIAL_EPOCH = -1, 0
EPOCH_MAX = 0x7FFFFFFF
EVICT_AFTER_MS = 120_000

Topic = str | UUID
PartitionKey = tuple[Topic, int]


@dataclass(slots=True)
class FetchedPartition:
    """One partition as the client fetches it, and as it was told of it last."""

    offset: int
    bytes_max: int
    leader_epoch: int
    high_watermark: int = -1
    log_start: int = -1
    had_error: bool = False


@dataclass(slots=True)
class Session:
    """One client's partitions, in the order in which they are answered: those that got data go to the end."""

    id: int
    epoch: int
    last_used_ms: int
    partitions: OrderedDict[PartitionKey, FetchedPartition] = field(default_factory=OrderedDict)

    def change(
        self, updated: Iterable[tuple[PartitionKey, FetchedPartition]], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Take over what a request says has changed."""
        for key, wanted in updated:
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = wanted
            else:
                known.offset, known.bytes_max, known.leader_epoch = wanted.offset, wanted.bytes_max, wanted.leader_epoch
        for key in forgotten:
            self.partitions.pop(key, None)


class SessionNotFound(Exception):
    """The client names a session that this broker does not have (any more)."""


class WrongSessionEpoch(Exception):
    """The client's count of this session's requests is not ours."""


class FetchSessions:
    """At most `slots` sessions. A new one takes the place of the one unused longest, if that is two minutes or more."""

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots, self._rng = slots, rng
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, now_ms: int) -> Session | None:
        """A new, empty session; None where there is no room, and the client fetches without one."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICT_AFTER_MS:
                return None
            del self._sessions[oldest.id]
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randint(1, EPOCH_MAX)
        session = self._sessions[session_id] = Session(session_id, 1, now_ms)
        return session

    def use(self, session_id: int, epoch: int, now_ms: int) -> Session:
        """The session for the client's next request. Raises SessionNotFound or WrongSessionEpoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound
        if session.epoch != epoch:
            raise WrongSessionEpoch
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
