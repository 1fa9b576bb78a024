"""Groups with epochs: what consumer groups (KIP-848) and share groups (KIP-932) have in common.

A change of members, subscriptions or topics begins a new group epoch, for which an assignment is computed. Requests,
deadlines and results are events: a method notes its event, and the group handles it when its effects are taken.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.changed_records import ChangedRecords, KeyT
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.exchange import Effect
from cordwood.cluster.groups.target_assignment import Partitions
from cordwood.storage.steps import Steps

_GroupT = TypeVar("_GroupT", bound="EpochGroup[Any]")
_ParamsT = ParamSpec("_ParamsT")


def event(
    handle: Callable[Concatenate[_GroupT, _ParamsT], Steps[None]],
) -> Callable[Concatenate[_GroupT, _ParamsT], None]:
    """Make a method that handles an event one that notes it. `EpochGroup.take_effects` runs the steps of `handle`."""

    @wraps(handle)
    def note(group: _GroupT, /, *args: _ParamsT.args, **kwargs: _ParamsT.kwargs) -> None:
        group.events.append(handle(group, *args, **kwargs))

    return note


class EpochGroup(AnyGroup, Generic[KeyT]):
    """One group. `KeyT` is the key of its records."""

    __slots__ = (
        "_effects",
        "_encoded_targets",
        "assignment_epoch",
        "context",
        "events",
        "group_epoch",
        "group_id",
        "records",
        "targets",
    )

    def __init__(self, group_id: str, context: GroupContext, records: ChangedRecords[KeyT]) -> None:
        self.group_id, self.context, self.records = group_id, context, records
        self.group_epoch = self.assignment_epoch = 0
        self.targets: dict[str, Partitions] = {}
        """The target assignment of `assignment_epoch`, by member id."""
        self._encoded_targets: dict[str, bytes] = {}
        """The records of targets that have to be written, as far as they were encoded with the computation."""
        self.events: deque[Steps[None]] = deque()
        """Requests, deadlines and results that the group has not handled yet."""
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> int:
        return self.group_epoch

    @property
    def is_vacant(self) -> bool:
        return not self.member_count

    def take_effects(self) -> Steps[list[Effect]]:
        while self.events:
            yield from self.events.popleft()
        effects, self._effects = self._effects, []
        return effects

    def record_keys(self) -> Sequence[bytes]:
        return list(self.records.encoded_keys())

    def check_delete(self) -> ErrorCode:
        return ErrorCode.non_empty_group if self.member_count else ErrorCode.none
