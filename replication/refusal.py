"""Refusals of requests by a partition: the reasons, and the exception that carries one."""

from enum import StrEnum


class Refusal(StrEnum):
    """Reasons why a partition does not serve a request."""

    UNKNOWN = "this broker has no replica of the partition"
    UNKNOWN_ID = "no topic has this id"
    NOT_LEADER = "another broker leads this partition"
    FENCED_EPOCH = "the leader epoch of the request is older than the partition's"
    UNKNOWN_EPOCH = "the leader epoch of the request is newer than the newest one known to this broker"
    OFFLINE = "the partition is offline on this broker: its log directory failed, or the replica violated an invariant"
    DELETED = "the partition was deleted"
    NOT_KNOWN_YET = "the leader was just elected and does not know its high watermark yet: try again"
    NOT_ENOUGH_REPLICAS = "fewer replicas are in sync than min.insync.replicas requires"
    FOLLOWS_REFUSED = "an earlier batch of the same producer was refused and has not been sent again"
    TIMED_OUT = "the in-sync replicas did not confirm the write within the producer's timeout"


class PartitionRefused(Exception):
    """An expected outcome: the partition cannot serve the request here and now."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason
