"""Requests and replies of the consumer protocol: frozen values, and the checks of a request that need no group."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.patterns import compile_pattern
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NAME_BYTES_MAX,
    STATIC_LEAVE_EPOCH,
    check,
    check_names,
)
from cordwood.cluster.groups.target_assignment import Partitions

UNCHANGED = -1
"""The rebalance timeout of a request that does not change it."""


def _may_describe_all(_topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request. None stands for what has not changed since the last one."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    makes_id: bool = True
    """Whether the client makes its member id, as it does from version 1 on."""
    may_describe: Callable[[str], bool] = _may_describe_all
    """Returns whether the client may describe a topic: a regular expression finds no others."""

    @property
    def is_full(self) -> bool:
        """True if the request has all fields of a member, so that the reply must have its assignment."""
        has_subscription = self.topics is not None or self.regex is not None
        has_all = self.rebalance_timeout_ms != UNCHANGED and has_subscription and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or has_all


def check_heartbeat(group_id: str, request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Refuse a request that no group accepts. Raises Refused."""
    _check_name(group_id, "GroupId", may_be_empty=False)
    if request.instance_id is not None:
        _check_name(request.instance_id, "InstanceId", may_be_empty=False)
    if request.rack_id is not None:
        _check_name(request.rack_id, "RackId", may_be_empty=False)
    may_have_no_id = not request.makes_id and request.member_epoch == JOIN_EPOCH
    _check_name(request.member_id, "MemberId", may_be_empty=may_have_no_id)
    check_names(request.topics or ())
    for name in (request.regex or "", request.client_id):
        _check_name(name, "A name", may_be_empty=True)
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        check(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        known = ", ".join(assignors)
        message = f"ServerAssignor {request.assignor} is not supported. Supported assignors: {known}."
        raise Refused(ErrorCode.unsupported_assignor, message)
    if request.regex:
        compile_pattern(request.regex)


def _check_join(request: ConsumerHeartbeat) -> None:
    check(request.rebalance_timeout_ms != UNCHANGED, "RebalanceTimeoutMs must be provided in first request.")
    check(request.owned is not None and not request.owned, "TopicPartitions must be empty when (re-)joining.")
    is_subscribed = request.topics is not None or request.regex is not None
    message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    check(is_subscribed, message)


def _check_name(name: str, what: str, *, may_be_empty: bool) -> None:
    check(may_be_empty or bool(name.strip()), f"{what} can't be empty.")
    check(len(name) <= NAME_BYTES_MAX and len(name.encode()) <= NAME_BYTES_MAX, f"{what} is too long.")
