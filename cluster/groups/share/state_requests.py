"""Share states of a group's partitions at the share coordinators: initializations, deletions and summaries."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.share.exchange import SharePartitionId, StateStart
from cordwood.cluster.resources.turns import Turns

AT_ONCE_MAX = 200
"""Partitions for which the share coordinators are asked at a time, as many as one request to one of them has."""

_ResultT = TypeVar("_ResultT")


class StateSummary(Protocol):
    """The share state of a partition, without its records in flight. `start_offset` is -1 before the first fetch."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def delivery_complete_count(self) -> int: ...


class Persister(Protocol):
    """The way to the share coordinators, which `cluster/share` implements. Its methods raise Refused."""

    async def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None: ...

    async def delete(self, group_id: str, topic_id: UUID, partition: int) -> None: ...

    async def summarize(self, group_id: str, topic_id: UUID, partition: int) -> StateSummary: ...


Refusals = dict[SharePartitionId, Refused]


class ShareStateRequests:
    """Requests to the share coordinators for many partitions of one group. Without a persister all are refused."""

    def __init__(self, persister: Persister | None, turns: Turns) -> None:
        self._known_persister, self._turns = persister, turns

    @property
    def _persister(self) -> Persister:
        if self._known_persister is None:
            raise Refused(ErrorCode.coordinator_not_available)
        return self._known_persister

    async def initialize(self, group_id: str, partitions: Mapping[SharePartitionId, StateStart]) -> Refusals:
        """Initialize states. Return the refusals."""

        async def ask(partition: SharePartitionId) -> None:
            start = partitions[partition]
            await self._persister.initialize(group_id, *partition, start.state_epoch, start.start_offset)

        return await self._refusals(await self._each(partitions, ask))

    async def delete(self, group_id: str, partitions: Iterable[SharePartitionId]) -> Refusals:
        """Delete states. Return the refusals."""

        async def ask(partition: SharePartitionId) -> None:
            await self._persister.delete(group_id, *partition)

        return await self._refusals(await self._each(partitions, ask))

    async def summarize(
        self, group_id: str, partitions: Iterable[SharePartitionId]
    ) -> dict[SharePartitionId, StateSummary | Refused]:
        """Return a summary or a refusal for each partition."""

        async def ask(partition: SharePartitionId) -> StateSummary:
            return await self._persister.summarize(group_id, *partition)

        return await self._each(partitions, ask)

    async def _each(
        self, partitions: Iterable[SharePartitionId], ask: Callable[[SharePartitionId], Awaitable[_ResultT]]
    ) -> dict[SharePartitionId, _ResultT | Refused]:
        async def asked(partition: SharePartitionId) -> _ResultT | Refused:
            try:
                return await ask(partition)
            except Refused as refusal:
                return refusal

        wanted = list(partitions)
        results = await self._turns.gather(asked, wanted, AT_ONCE_MAX)
        return {partition: result async for partition, result in self._turns.each(zip(wanted, results, strict=True))}

    async def _refusals(self, results: Mapping[SharePartitionId, object]) -> Refusals:
        found = self._turns.each(results.items())
        return {partition: result async for partition, result in found if isinstance(result, Refused)}
