"""Counts of what share groups have done at this broker."""

from dataclasses import dataclass


@dataclass(slots=True)
class ShareMeasures:
    """Counts since the broker has started, in records unless the name has another unit."""

    acquired: int = 0
    redelivered: int = 0
    """Records that were acquired, and not for the first time."""
    acknowledged: int = 0
    released: int = 0
    rejected: int = 0
    """Records that a member has rejected. They are archived, too."""
    archived: int = 0
    """Records that were rejected or undeliverable, or that no member could get."""
    expired_locks: int = 0
    dead_letters: int = 0
    """Records that were copied to a dead-letter queue."""
    dead_letters_without_contents: int = 0
    """Copies without key and value, of records that could not be read, or that were too large for the queue."""
    dead_letters_refused: int = 0
    """Records that were archived without a copy: the topic of the group's dead-letter queue may not be used."""
    writes: int = 0
    """Requests to share coordinators."""
    failed_writes: int = 0
