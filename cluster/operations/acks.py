"""Acknowledgements of a produce request, as a user names them (`acks`)."""

from enum import Enum


class Acks(Enum):
    """The replicas that must have the records on disk before they are acknowledged."""

    NONE = "0"
    """None: the answer comes immediately."""
    LEADER = "1"
    """The leader."""
    ALL = "all"
    """All in-sync replicas."""
