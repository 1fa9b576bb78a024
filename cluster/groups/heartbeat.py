"""Heartbeats of consumer and share groups: the epochs of a request that mean something else, and the reply."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.target_assignment import Partitions

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""The epoch of a static member of a consumer group that left and may come back."""
NAME_BYTES_MAX = 32_000
"""Largest length of a name that fits the records."""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat of either protocol. The assignment is None while the member knows it."""

    code: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


def check(is_so: bool, message: str) -> None:
    """Refuse a request as invalid unless `is_so`. Raises Refused."""
    if not is_so:
        raise Refused(ErrorCode.invalid_request, message)
