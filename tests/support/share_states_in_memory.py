"""The share coordinators in memory: the state of each partition by group, and refusals as a test sets them."""

from dataclasses import dataclass, replace
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused

Key = tuple[str, UUID, int]


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state of one partition."""

    state_epoch: int
    start_offset: int
    leader_epoch: int = 0
    delivery_complete_count: int = 0


class StatesInMemory:
    """The states of all groups."""

    def __init__(self) -> None:
        self.kept: dict[Key, KeptState] = {}
        self.code = ErrorCode.none
        """The code of every answer."""

    def put(self, group_id: str, topic_id: UUID, partition: int, state: KeptState) -> None:
        self.kept[group_id, topic_id, partition] = state

    async def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        self._check()
        key = (group_id, topic_id, partition)
        known = self.kept.get(key)
        if known is None or start_offset >= 0:
            self.kept[key] = KeptState(state_epoch, start_offset)
        else:
            self.kept[key] = replace(known, state_epoch=state_epoch)

    async def delete(self, group_id: str, topic_id: UUID, partition: int) -> None:
        self._check()
        self.kept.pop((group_id, topic_id, partition), None)

    async def summarize(self, group_id: str, topic_id: UUID, partition: int) -> KeptState:
        self._check()
        return self.kept.get((group_id, topic_id, partition), KeptState(0, -1))

    def _check(self) -> None:
        if self.code is not ErrorCode.none:
            raise Refused(self.code)
