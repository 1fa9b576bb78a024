"""Heartbeats of consumer and share groups: the epochs of a request that mean something else, and the reply."""

from collections.abc import Iterable, Sequence
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
UTF_8_BYTES_MAX = 4
"""Largest number of bytes of a character."""
SUBSCRIBED_NAMES_MAX = 5_000
"""Largest number of topics that a member subscribes to by name. A regular expression may match more."""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat of either protocol. The assignment is None if the member has confirmed it."""

    code: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


def check_number_of_topics(names: Sequence[str] | None) -> None:
    """Refuse a subscription to too many topics, before anything is done for each of them. Raises Refused."""
    if names is not None and len(names) > SUBSCRIBED_NAMES_MAX:
        message = f"A member subscribes to at most {SUBSCRIBED_NAMES_MAX} topics by name."
        raise Refused(ErrorCode.invalid_request, message)


def check_names(names: Iterable[str]) -> None:
    """Refuse names that fit no record. Raises Refused."""
    for name in names:
        # Most names are short: these need not be encoded.
        if len(name) > NAME_BYTES_MAX // UTF_8_BYTES_MAX and len(name.encode()) > NAME_BYTES_MAX:
            raise Refused(ErrorCode.invalid_request, f"A name is longer than {NAME_BYTES_MAX} bytes.")


def check(is_so: bool, message: str) -> None:
    """Refuse a request as invalid unless `is_so`. Raises Refused."""
    if not is_so:
        raise Refused(ErrorCode.invalid_request, message)
