"""Counts of queues over HTTP at this broker."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class QueueMeasures:
    """Counts since the broker has started."""

    takes: int = 0
    """Requests for records."""
    taken_records: int = 0
    acknowledgements: int = 0
    """Receipts of all types of acknowledgement that were accepted."""
    refused_acknowledgements: int = 0
    held: Callable[[], int] = lambda: 0
    """Returns the number of records that clients hold."""
