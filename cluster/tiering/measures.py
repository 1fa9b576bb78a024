"""Measures of a broker's archiving, for metrics and the HTTP API."""

from dataclasses import dataclass


@dataclass(slots=True)
class ArchiveMeasures:
    """Counts since the broker started."""

    uploaded_segments: int = 0
    uploaded_bytes: int = 0
    failed_steps: int = 0
    """Uploads, commits and deletions that the store has refused or not answered: each is tried again."""
    deleted_objects: int = 0
    failure: str = ""
    """The reason why the last step of a partition failed; empty once a step has succeeded."""

    def failed(self, reason: str) -> None:
        self.failed_steps += 1
        self.failure = reason

    def succeeded(self) -> None:
        self.failure = ""
