"""Requests of brokers to a share coordinator, and of this broker to all share coordinators (KIP-932)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.delete_share_group_state.v0 import request as delete_requests
from kio.schema.errors import ErrorCode
from kio.schema.initialize_share_group_state.v0 import request as initialize_requests
from kio.schema.read_share_group_state.v0 import request as read_requests
from kio.schema.read_share_group_state_summary.v1 import request as summary_requests
from kio.schema.write_share_group_state.v1 import request as write_requests

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, refusal_of
from cordwood.cluster.kafka.rows import rows as lazy_rows
from cordwood.cluster.share.coordinator import (
    UNKNOWN,
    Deletion,
    Initialization,
    ShareCoordinator,
    StateAnswer,
    StateChange,
    StateRead,
    StateRequest,
)
from cordwood.cluster.share.persister import StateRequestKind
from cordwood.cluster.share.share_partition import WRITE_BATCHES_MAX
from cordwood.cluster.share.state import UNKNOWN_COUNT, SharePartitionState
from cordwood.cluster.share.states import STORED, RecordState, SharePartitionKey, StateBatch

ROWS_AT_ONCE = 50
"""Share partitions of a request that the coordinator is asked for at a time. Each counts as a step of a slice."""
BATCHES_AT_ONCE = 2000
"""State batches of a response that are read in one step."""
NO_ID = UUID(int=0)

_RowT = TypeVar("_RowT", bound=StateRequest)
_REFUSED = refusal_of(CLUSTER)


class AnsweredPartition(NamedTuple):
    """The answer about one partition of a request."""

    partition: int
    answer: StateAnswer


class AnsweredTopic(NamedTuple):
    """The answers about the partitions of one topic of a request."""

    topic_id: UUID | None
    partitions: list[AnsweredPartition]


async def answer_all(
    request: Any,
    row_of: Callable[[SharePartitionKey, Any], _RowT],
    ask: Callable[[Sequence[_RowT]], Awaitable[list[StateAnswer]]],
    call: Call,
) -> list[AnsweredTopic]:
    """Answer each partition of a broker's request, in the order of the request."""
    rows: list[_RowT] = []
    refusal = None if call.may(CLUSTER_ACTION, CLUSTER) else StateAnswer(UNKNOWN, _REFUSED.code, _REFUSED.message)
    async for topic, partition in call.turns.within((topic, topic.partitions) for topic in request.topics):
        key = SharePartitionKey(request.group_id, topic.topic_id or NO_ID, partition.partition)
        try:
            rows.append(row_of(key, partition))
        except ValueError:
            refusal = refusal or StateAnswer(UNKNOWN, ErrorCode.invalid_request, "A state batch is not valid.")
            break
    answers: list[StateAnswer] = []
    some: list[_RowT] = []
    async for row in call.turns.each(() if refusal is not None else rows):
        some.append(row)
        if len(some) == ROWS_AT_ONCE:
            answers += await ask(some)
            some = []
    if some:
        answers += await ask(some)
    found = iter(answers)
    answered: list[AnsweredTopic] = []
    async for topic in call.turns.each(request.topics):
        partitions = [
            AnsweredPartition(partition.partition, next(found) if refusal is None else refusal)
            async for partition in call.turns.each(topic.partitions)
        ]
        answered.append(AnsweredTopic(topic.topic_id, partitions))
    return answered


def read_of(key: SharePartitionKey, partition: Any) -> StateRead:
    """Return the read of a ReadShareGroupState or ReadShareGroupStateSummary request."""
    return StateRead(key, partition.leader_epoch)


def change_of(key: SharePartitionKey, partition: Any) -> StateChange:
    """Return the change of a WriteShareGroupState request. Raises ValueError, also for more than a leader sends."""
    if len(partition.state_batches) > WRITE_BATCHES_MAX:
        raise ValueError(f"{len(partition.state_batches)} state batches, at most {WRITE_BATCHES_MAX}")
    batches = tuple(batches_of(partition.state_batches))
    return StateChange(
        key,
        partition.state_epoch,
        partition.leader_epoch,
        partition.start_offset,
        batches,
        partition.delivery_complete_count,
    )


def batches_of(batches: Iterable[Any]) -> Iterator[StateBatch]:
    """Yield the state batches of a message. Raises ValueError."""
    for batch in batches:
        state = RecordState(batch.delivery_state)
        if state not in STORED or not 0 <= batch.first_offset <= batch.last_offset:
            raise ValueError(batch)
        yield StateBatch(batch.first_offset, batch.last_offset + 1, state, batch.delivery_count)


class ShareStateTransport:
    """Requests to the share coordinator on this broker, by a call, and to others, over the connections of a client."""

    def __init__(self, client: ClusterClient, here: ShareCoordinator, answer_s: float) -> None:
        self._client, self._here, self._answer_s = client, here, answer_s

    async def send(self, broker: int, kind: StateRequestKind, rows: Sequence[Any]) -> list[StateAnswer]:
        """Send rows to a broker, for each group a request. Return the answers. Raises Refused."""
        if broker == self._client.broker_id:
            return await self._ask_here(kind, rows)
        by_group: dict[str, list[Any]] = {}
        for row in rows:
            by_group.setdefault(row.key.group_id, []).append(row)
        found: dict[SharePartitionKey, list[StateAnswer]] = {}
        for group_id, of_group in by_group.items():
            for row, answer in zip(of_group, await self._ask(broker, kind, group_id, of_group), strict=True):
                found.setdefault(row.key, []).append(answer)
        return [found[row.key].pop(0) for row in rows]

    async def _ask_here(self, kind: StateRequestKind, rows: Sequence[Any]) -> list[StateAnswer]:
        here = self._here
        match kind:
            case StateRequestKind.INITIALIZE:
                return await here.initialize(rows)
            case StateRequestKind.READ:
                return await here.read(rows)
            case StateRequestKind.WRITE:
                return await here.write(rows)
            case StateRequestKind.SUMMARIZE:
                return await here.summarize(rows)
            case StateRequestKind.DELETE:
                return await here.delete(rows)

    async def _ask(self, broker: int, kind: StateRequestKind, group_id: str, rows: Sequence[Any]) -> list[StateAnswer]:
        try:
            response = await self._client.ask(broker, _REQUESTS[kind](group_id, rows), self._answer_s)
        except Unanswered as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error
        answers, batches = [], 0
        for row in (row for topic in response.results for row in topic.partitions):
            answers.append(_answer(row))
            batches += len(answers[-1].state.batches)
            if batches > BATCHES_AT_ONCE:
                batches = 0
                await asyncio.sleep(0)
        if len(answers) != len(rows):
            raise Refused(ErrorCode.coordinator_not_available, f"Broker {broker} left out share partitions.")
        return answers


def _answer(row: Any) -> StateAnswer:
    """Return a row of a response as an answer; fields that this kind of response has not are unknown."""
    try:
        batches = tuple(batches_of(getattr(row, "state_batches", ())))
    except ValueError:
        return StateAnswer(UNKNOWN, ErrorCode.coordinator_not_available, "A share coordinator sent an unknown state.")
    state = SharePartitionState(
        state_epoch=getattr(row, "state_epoch", 0),
        leader_epoch=getattr(row, "leader_epoch", 0),
        start_offset=getattr(row, "start_offset", UNKNOWN.start_offset),
        delivery_complete_count=getattr(row, "delivery_complete_count", UNKNOWN_COUNT),
        batches=batches,
    )
    return StateAnswer(state, ErrorCode(row.error_code), row.error_message)


def _alone(rows: Iterable[_RowT], topic: Any, partition: Callable[[_RowT], Any]) -> tuple[Any, ...]:
    """Return a topic for each row: so the response has the rows in the same order."""
    return tuple(topic(topic_id=row.key.topic_id, partitions=(partition(row),)) for row in rows)


def _initialize(group_id: str, rows: Sequence[Initialization]) -> Any:
    module = initialize_requests
    topics = _alone(
        rows,
        module.InitializeStateData,
        lambda row: module.PartitionData(
            partition=row.key.partition, state_epoch=row.state_epoch, start_offset=row.start_offset
        ),
    )
    return module.InitializeShareGroupStateRequest(group_id=group_id, topics=topics)


def _read(group_id: str, rows: Sequence[StateRead]) -> Any:
    topics = _read_rows(rows, read_requests.ReadStateData, read_requests.PartitionData)
    return read_requests.ReadShareGroupStateRequest(group_id=group_id, topics=topics)


def _read_rows(rows: Sequence[StateRead], topic: Any, partition: Any) -> Any:
    return _alone(rows, topic, lambda row: partition(partition=row.key.partition, leader_epoch=row.leader_epoch))


def _write(group_id: str, rows: Sequence[StateChange]) -> Any:
    module = write_requests

    def batch(one: StateBatch) -> Any:
        return module.StateBatch(
            first_offset=one.start,
            last_offset=one.end - 1,
            delivery_state=int(one.state),
            delivery_count=one.delivery_count,
        )

    topics = _alone(
        rows,
        module.WriteStateData,
        lambda row: module.PartitionData(
            partition=row.key.partition,
            state_epoch=row.state_epoch,
            leader_epoch=row.leader_epoch,
            start_offset=row.start_offset,
            delivery_complete_count=row.delivery_complete_count,
            state_batches=lazy_rows(batch, row.batches),
        ),
    )
    return module.WriteShareGroupStateRequest(group_id=group_id, topics=topics)


def _summarize(group_id: str, rows: Sequence[StateRead]) -> Any:
    topics = _read_rows(rows, summary_requests.ReadStateSummaryData, summary_requests.PartitionData)
    return summary_requests.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics)


def _delete(group_id: str, rows: Sequence[Deletion]) -> Any:
    module = delete_requests
    topics = _alone(rows, module.DeleteStateData, lambda row: module.PartitionData(partition=row.key.partition))
    return module.DeleteShareGroupStateRequest(group_id=group_id, topics=topics)


_REQUESTS: Mapping[StateRequestKind, Callable[[str, Sequence[Any]], Any]] = {
    StateRequestKind.INITIALIZE: _initialize,
    StateRequestKind.READ: _read,
    StateRequestKind.WRITE: _write,
    StateRequestKind.SUMMARIZE: _summarize,
    StateRequestKind.DELETE: _delete,
}
