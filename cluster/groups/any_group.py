"""Interface of a group of any kind to the coordinator.

A group is a state machine without clock and network. Methods take the present time, and return effects for the
coordinator to execute (`exchange.py`). The coordinator shell has the timers, the writes and the waiting requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import ClassVar

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.exchange import AppendRecords, Compute, Effect, Join, Leaver, RequestId, Sync
from cordwood.storage.steps import Steps
from cordwood.storage.types import TopicPartition


class GroupKind(Enum):
    """The kinds of groups, with the names that Kafka's tools show."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class AnyGroup(ABC):
    """One group. After each call that may change it, the caller executes its effects."""

    __slots__ = ()

    group_id: str
    kind: GroupKind
    expires: ClassVar[bool] = True
    """Whether the group is removed after its last offset has expired."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as Kafka's tools show it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """The protocol type in lists of groups; None for a group that has never had a member."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The generation of a classic group, the group epoch of any other; for the log."""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """The number of members."""

    @property
    @abstractmethod
    def is_vacant(self) -> bool:
        """True if the group has no members and expects none."""

    @property
    @abstractmethod
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members read; None if they are unknown."""

    @abstractmethod
    def take_effects(self) -> Steps[list[Effect]]:
        """Handle the pending events, and return the effects to execute, in order.

        The state changes in these steps only.
        """

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Return the time of the next `tick`; None without a deadline."""

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Handle the deadlines that are due."""

    @abstractmethod
    def begin_sessions(self, now_ms: int) -> None:
        """Start the sessions of restored members: this broker has had no heartbeat of them yet."""

    @abstractmethod
    def waiting(self) -> Iterable[RequestId]:
        """Return the requests that wait for the group itself, and not only for a write. A lost shard refuses them."""

    @abstractmethod
    def record_keys(self) -> Sequence[bytes]:
        """Return the keys of the group's records in the log, which a removal deletes.

        There are none for a classic group: its shard keeps account of its only record.
        """

    @abstractmethod
    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        partitions: Iterable[TopicPartition],
        *,
        knows_epochs: bool = True,
    ) -> ErrorCode:
        """Return the code for an offset commit of a member, or of a client with neither id nor generation.

        `generation` is the member epoch in a group that has no generations. A client with `knows_epochs` sends
        OffsetCommit 9 or newer (KIP-848).
        """

    @abstractmethod
    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Return the code for an offset commit in a transaction (KIP-447)."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the code for a fetch of the group's offsets by a member; None and -1 for other clients (KIP-848)."""

    @abstractmethod
    def check_delete(self) -> ErrorCode:
        """Return the code for deleting the group: only a group without members may be deleted."""

    @abstractmethod
    def check_offset_delete(self) -> ErrorCode:
        """Return the code for deleting offsets: the topics that members of other protocol types read are unknown."""

    @abstractmethod
    def reads(self, topic: str) -> bool:
        """Return True if a member has subscribed to the topic, or may have."""

    @abstractmethod
    def retained_from(self, topic: str, committed_ms: int) -> int | None:
        """Return the wall-clock time from which the retention of an offset runs; None while it does not (KIP-211)."""

    def topics_changed(self, names: frozenset[str]) -> None:  # noqa: B027
        """Note that these topics were created, changed or deleted. Effects may follow at the next request."""

    def not_appended(self, append: AppendRecords, code: ErrorCode, now_ms: int) -> None:  # noqa: B027
        """Note that the records of an `AppendRecords` are not in the log. Its answers have been refused with `code`."""

    def not_converted(self) -> None:  # noqa: B027
        """Go on: the group that was to take the place of this one could not be written."""

    def computed(self, compute: Compute, result: object, now_ms: int) -> None:  # noqa: ARG002
        """Take the result of a `Compute`."""
        raise AssertionError("a group that asks for a computation takes its result")


class OffsetlessGroup(AnyGroup):
    """A group that commits no offsets, as share groups. Requests for offsets do not find it, and it never expires."""

    __slots__ = ()
    expires = False

    def check_commit(
        self,
        member_id: str,  # noqa: ARG002
        instance_id: str | None,  # noqa: ARG002
        generation: int,  # noqa: ARG002
        now_ms: int,  # noqa: ARG002
        partitions: Iterable[TopicPartition],  # noqa: ARG002
        *,
        knows_epochs: bool = True,  # noqa: ARG002
    ) -> ErrorCode:
        return ErrorCode.group_id_not_found

    def check_transactional_commit(
        self,
        member_id: str,  # noqa: ARG002
        instance_id: str | None,  # noqa: ARG002
        generation: int,  # noqa: ARG002
        partitions: Iterable[TopicPartition],  # noqa: ARG002
    ) -> ErrorCode:
        return ErrorCode.group_id_not_found

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:  # noqa: ARG002
        return ErrorCode.group_id_not_found

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.group_id_not_found

    def retained_from(self, topic: str, committed_ms: int) -> int | None:  # noqa: ARG002
        return committed_ms


class ClassicMembership(AnyGroup):
    """A group that members with the classic protocol may join."""

    __slots__ = ()

    @abstractmethod
    def join(self, request: Join, request_id: RequestId, new_id: str, now_ms: int) -> None:
        """Handle JoinGroup. `new_id` is the id for a new member. The reply is an effect, possibly later."""

    @abstractmethod
    def sync(self, request: Sync, request_id: RequestId, now_ms: int) -> None:
        """Handle SyncGroup. The reply is an effect, possibly later."""

    @abstractmethod
    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Handle Heartbeat."""

    @abstractmethod
    def leave(self, leavers: Sequence[Leaver], now_ms: int) -> list[ErrorCode]:
        """Handle LeaveGroup. Return a code for each leaver."""
