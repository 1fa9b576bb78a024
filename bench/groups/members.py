"""Members of groups without records: each has its own connection, and sends a consumer's requests."""

import asyncio
import struct
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName

from cordwood.client.codec import ClientCodec
from cordwood.cluster.groups.heartbeat import LEAVE_EPOCH

SESSION = timedelta(seconds=45)
REBALANCE = timedelta(minutes=5)
PROTOCOL, PROTOCOL_TYPE = "range", "consumer"

RETRY_S = 0.1
RETRIABLE = (ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available)

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_COUNT = struct.Struct(">i")


@dataclass(slots=True)
class MembershipPlan:
    """The group that members join."""

    group: str
    topic: str
    topic_id: UUID
    partitions: int
    heartbeat_s: float
    """The interval of heartbeats of the classic protocol. In others the broker says it."""


@dataclass(slots=True)
class MembershipNotes:
    """The events that the members of one process noticed. Times are seconds of the machine's monotonic clock."""

    changed_at: float = 0.0
    """The last time at which a member's epoch or partitions changed."""
    latencies: list[float] = field(default_factory=list)
    """The latency of each heartbeat."""
    errors: list[str] = field(default_factory=list)


class GroupClient(asyncio.Protocol, ABC):
    """One member, with one request in flight at a time."""

    def __init__(self, plan: MembershipPlan, notes: MembershipNotes) -> None:
        self.plan, self.notes = plan, notes
        self.epoch = -1
        """The generation or member epoch of the partitions; -1 while the member has none."""
        self.partitions: frozenset[int] = frozenset()
        self.member_id = ""
        self.has_left = False
        self._codec: ClientCodec[float] = ClientCodec("bench")
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.join()

    def data_received(self, data: bytes) -> None:
        for response in self._codec.feed(data):
            if not self.has_left:
                self.answered(response.message, time.monotonic() - response.waiter)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.has_left:
            self.notes.errors.append(f"a connection ended: {exc}")

    @abstractmethod
    def join(self) -> None:
        """Send the first request."""

    @abstractmethod
    def answered(self, message: Any, seconds: float) -> None:
        """Take the response to the request in flight."""

    @abstractmethod
    def leaving(self) -> Any:
        """Return the request that leaves the group."""

    def leave(self) -> None:
        """Leave the group. The connection stays open."""
        if self._timer is not None:
            self._timer.cancel()
        self.send(self.leaving())
        self.has_left = True

    def send(self, request: Any) -> None:
        assert self._transport is not None
        self._transport.write(self._codec.encode(request, time.monotonic()))

    def later(self, seconds: float, request: Any) -> None:
        """Send a request after this time."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self.send, request)

    def now_has(self, epoch: int, partitions: frozenset[int]) -> None:
        if (epoch, partitions) != (self.epoch, self.partitions):
            self.epoch, self.partitions = epoch, partitions
            self.notes.changed_at = time.monotonic()


class ClassicClient(GroupClient):
    """A member with the classic protocol. The leader gives each member a range of partitions."""

    def join(self) -> None:
        topic = self.plan.topic.encode()
        metadata = _HEAD.pack(0, 1) + _LENGTH.pack(len(topic)) + topic + _COUNT.pack(-1)
        self.send(
            JoinGroupRequest(
                group_id=GroupId(self.plan.group),
                session_timeout=SESSION,
                rebalance_timeout=REBALANCE,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=(JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata),),
            )
        )

    def answered(self, message: Any, seconds: float) -> None:
        match type(message).__name__:
            case "JoinGroupResponse":
                self._joined(message)
            case "SyncGroupResponse":
                self._synced(message)
            case _:
                self.notes.latencies.append(seconds)
                if message.error_code is ErrorCode.none:
                    self.later(self.plan.heartbeat_s, self._heartbeat())
                else:
                    self._again(message.error_code)

    def leaving(self) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=GroupId(self.plan.group), members=(MemberIdentity(member_id=self.member_id),))

    def _joined(self, message: Any) -> None:
        self.member_id = message.member_id or self.member_id
        if message.error_code is not ErrorCode.none:
            self._again(message.error_code)
            return
        self._generation = message.generation_id
        shares = ()
        if message.leader == message.member_id:
            members = [member.member_id for member in message.members]
            shares = tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=self._share(number, len(members)))
                for number, member in enumerate(members)
            )
        self.send(
            SyncGroupRequest(
                group_id=GroupId(self.plan.group),
                generation_id=message.generation_id,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=shares,
            )
        )

    def _share(self, number: int, members: int) -> bytes:
        count, topic = self.plan.partitions, self.plan.topic.encode()
        mine = range(number * count // members, (number + 1) * count // members)
        head = _HEAD.pack(0, 1) + _LENGTH.pack(len(topic)) + topic
        return b"".join((head, _COUNT.pack(len(mine)), *map(_COUNT.pack, mine), _COUNT.pack(-1)))

    def _synced(self, message: Any) -> None:
        if message.error_code is not ErrorCode.none:
            self._again(message.error_code)
            return
        at = _HEAD.size + _LENGTH.size + len(self.plan.topic.encode())
        (count,) = _COUNT.unpack_from(message.assignment, at)
        mine = struct.unpack_from(f">{count}i", message.assignment, at + _COUNT.size)
        self.now_has(self._generation, frozenset(mine))
        self.later(self.plan.heartbeat_s, self._heartbeat())

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=GroupId(self.plan.group), generation_id=self._generation, member_id=self.member_id
        )

    def _again(self, code: ErrorCode) -> None:
        """Join again after an error."""
        self.epoch = -1
        if code in RETRIABLE:
            asyncio.get_running_loop().call_later(RETRY_S, self.join)
            return
        if code not in (ErrorCode.member_id_required, ErrorCode.rebalance_in_progress):
            self.notes.errors.append(code.name)
            self.member_id = ""
        self.join()


class ConsumerClient(GroupClient):
    """A member with the consumer protocol (KIP-848), which confirms each assignment at once."""

    def __init__(self, plan: MembershipPlan, notes: MembershipNotes) -> None:
        super().__init__(plan, notes)
        self.member_id = str(uuid4())
        self._interval_s = 0.0

    def join(self) -> None:
        self.send(self._request(0, is_full=True))

    def answered(self, message: Any, seconds: float) -> None:
        if self.epoch >= 0:
            # The first request waits for an assignment.
            self.notes.latencies.append(seconds)
        if message.error_code is not ErrorCode.none:
            if message.error_code not in RETRIABLE:
                self.notes.errors.append(message.error_code.name)
            self.epoch = -1
            asyncio.get_running_loop().call_later(RETRY_S, self.join)
            return
        self._interval_s = message.heartbeat_interval.total_seconds()
        if message.assignment is None:
            self.now_has(message.member_epoch, self.partitions)
            self.later(self._interval_s, self._request(message.member_epoch))
            return
        assigned = frozenset(index for topic in message.assignment.topic_partitions for index in topic.partitions)
        is_same = assigned == self.partitions
        self.now_has(message.member_epoch, assigned)
        if is_same:
            self.later(self._interval_s, self._request(message.member_epoch))
        else:
            self.send(self._request(message.member_epoch, owns=True))

    def leaving(self) -> ConsumerGroupHeartbeatRequest:
        return self._request(LEAVE_EPOCH)

    def _request(self, epoch: int, *, is_full: bool = False, owns: bool = False) -> ConsumerGroupHeartbeatRequest:
        owned = None
        if is_full or owns:
            mine = tuple(sorted(self.partitions))
            owned = (TopicPartitions(topic_id=self.plan.topic_id, partitions=mine),) if mine and not is_full else ()
        return ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self.plan.group),
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=(TopicName(self.plan.topic),) if is_full else None,
            topic_partitions=owned,
            **({"rebalance_timeout": REBALANCE} if is_full else {}),
        )


KINDS: dict[str, type[GroupClient]] = {"classic": ClassicClient, "consumer": ConsumerClient}
