"""Share persister: how partition leaders and group coordinators reach the stored state of share partitions.

Requests for one partition of `__share_group_state` wait in a lane. A lane has one request of each kind under way, with
everything that came meanwhile in the next one: however many members acknowledge, there is one write at a time.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.coordinator import (
    Deletion,
    Initialization,
    StateAnswer,
    StateChange,
    StateRead,
    StateRequest,
)
from cordwood.cluster.share.state import SharePartitionState
from cordwood.cluster.share.states import SharePartitionKey
from cordwood.replication.tasks import Tasks, report
from cordwood.storage.types import NO_EPOCH

ROWS_MAX = 200
"""Share partitions in one request."""
RETRY_S, RETRY_MAX_S = 0.05, 1.0

RETRIABLE = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
"""Codes after which another coordinator, or the same one later, may answer."""


class StateRequestKind(Enum):
    """The requests to a share coordinator."""

    INITIALIZE = "initialize"
    READ = "read"
    WRITE = "write"
    SUMMARIZE = "summarize"
    DELETE = "delete"


class ShareSummary(NamedTuple):
    """How far a share group is on a partition; the start offset is -1 if no member has fetched from it."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """The records at or after the start offset that are done; -1 if it is not known."""


class StateTransport(Protocol):
    """Sends requests to the share coordinator on a broker, or on this one."""

    async def send(self, broker: int, kind: StateRequestKind, rows: Sequence[StateRequest]) -> list[StateAnswer]:
        """Return the answer of each row. Raises Refused with a retriable code if the broker does not answer."""
        ...


class _Pending(NamedTuple):
    row: StateRequest
    answered: "asyncio.Future[SharePartitionState]"
    deadline: float


class SharePersister:
    """The way to all share coordinators. Methods raise Refused."""

    def __init__(
        self,
        place: Callable[[SharePartitionKey], Awaitable[int]],
        leader_of: Callable[[int], int | None],
        transport: StateTransport,
        timeout_s: float,
    ) -> None:
        """`place` returns the partition of `__share_group_state` of a share partition, `leader_of` its leader."""
        self._place, self._leader_of, self._transport = place, leader_of, transport
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[StateRequestKind, int], deque[_Pending]] = {}
        self._tasks = Tasks()

    async def close(self) -> None:
        """Send nothing any more."""
        await self._tasks.close()

    async def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """Begin a share partition anew at an offset, which fences its leader.

        With -1 as the offset, a share partition without state will begin where the group's configs say, and one with
        state only gets the epoch.
        """
        key = SharePartitionKey(group_id, topic_id, partition)
        await self._ask(StateRequestKind.INITIALIZE, Initialization(key, state_epoch, start_offset))

    async def delete(self, group_id: str, topic_id: UUID, partition: int) -> None:
        """Delete the state of a share partition, if there is any."""
        await self._ask(StateRequestKind.DELETE, Deletion(SharePartitionKey(group_id, topic_id, partition)))

    async def summarize(self, group_id: str, topic_id: UUID, partition: int) -> ShareSummary:
        """Return how far the group is on a partition."""
        key = SharePartitionKey(group_id, topic_id, partition)
        state = await self._ask(StateRequestKind.SUMMARIZE, StateRead(key, NO_EPOCH))
        return ShareSummary(state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> SharePartitionState:
        """Return the state of a share partition to its leader, and fence former leaders."""
        return await self._ask(StateRequestKind.READ, StateRead(key, leader_epoch))

    async def write(self, change: StateChange) -> None:
        """Store the changes of a leader. The outcome is unknown after a refusal with a retriable code."""
        await self._ask(StateRequestKind.WRITE, change)

    async def _ask(self, kind: StateRequestKind, row: StateRequest) -> SharePartitionState:
        deadline = self._loop.time() + self._timeout_s
        lane = kind, await self._place(row.key)
        waiting = self._lanes.get(lane)
        if waiting is None:
            waiting = self._lanes[lane] = deque()
            self._tasks.spawn(self._run(lane, waiting), f"share states: {kind.value}")
        answered: asyncio.Future[SharePartitionState] = self._loop.create_future()
        waiting.append(_Pending(row, answered, deadline))
        return await answered

    async def _run(self, lane: tuple[StateRequestKind, int], waiting: deque[_Pending]) -> None:
        """Send what waits in a lane until nothing does."""
        pause_s = RETRY_S
        try:
            while waiting:
                rows = [waiting.popleft() for _ in range(min(len(waiting), ROWS_MAX))]
                refused = await self._send(lane, rows)
                if not refused:
                    pause_s = RETRY_S
                    continue
                waiting.extendleft(reversed(refused))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
        finally:
            del self._lanes[lane]
            for pending in waiting:
                _refuse(pending, Refused(ErrorCode.coordinator_not_available, "The broker stops."))

    async def _send(self, lane: tuple[StateRequestKind, int], rows: Sequence[_Pending]) -> list[_Pending]:
        """Send one request. Return the rows that are to be sent again."""
        kind, partition = lane
        try:
            leader = self._leader_of(partition)
            if leader is None:
                raise Refused(ErrorCode.coordinator_not_available, "The share coordinator has no leader.")
            answers = await self._transport.send(leader, kind, [pending.row for pending in rows])
        except Refused as refusal:
            answers = [StateAnswer(SharePartitionState(), refusal.code, refusal.message)] * len(rows)
        except Exception as error:
            report("a request to a share coordinator failed", error)
            answers = [StateAnswer(SharePartitionState(), ErrorCode.unknown_server_error)] * len(rows)
        again = []
        now = self._loop.time()
        for pending, answer in zip(rows, answers, strict=True):
            if pending.answered.done():
                continue
            if not answer.code:
                pending.answered.set_result(answer.state)
            elif answer.code in RETRIABLE and now < pending.deadline:
                again.append(pending)
            else:
                code = ErrorCode.coordinator_not_available if answer.code in RETRIABLE else answer.code
                pending.answered.set_exception(Refused(code, answer.message))
        return again


def _refuse(pending: _Pending, reason: Refused) -> None:
    if not pending.answered.done():
        pending.answered.set_exception(reason)
        # Its caller may have been cancelled: mark the exception as retrieved.
        pending.answered.exception()
