"""Metrics of a voter's metadata files: journal size, snapshot size and fdatasync latency."""

from cordwood.replication.measures import SECONDS, Histogram


class FileMeasures:
    """The metrics, updated by the code that writes the files."""

    def __init__(self, journal_bytes: int) -> None:
        self.journal_bytes = journal_bytes
        self.snapshot_bytes = 0
        """The size of the newest snapshot that this process wrote; 0 if it has written none."""
        self.sync_seconds = Histogram(SECONDS)
        """The fdatasync latency, by the event loop's clock."""

    def synced(self, seconds: float, journal_bytes: int) -> None:
        """Record that a journal of `journal_bytes` was synced in `seconds`."""
        self.sync_seconds.add(seconds)
        self.journal_bytes = journal_bytes
