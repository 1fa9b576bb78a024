"""The files that a voter keeps the metadata in: how large they are, and how long their syncs take."""

from cordwood.replication.measures import SECONDS, Histogram


class FileMeasures:
    """Written by whoever writes the files."""

    def __init__(self, journal_bytes: int) -> None:
        self.journal_bytes = journal_bytes
        self.snapshot_bytes = 0
        """Of the snapshot that was written last; 0 where this process has not written any."""
        self.sync_seconds = Histogram(SECONDS)
        """By the loop's time."""

    def synced(self, seconds: float, journal_bytes: int) -> None:
        """The journal, which is so long, is on disk."""
        self.sync_seconds.add(seconds)
        self.journal_bytes = journal_bytes
