"""Run mark of a log directory: whether its last run ended by a stop, by a kill, or by a power cut.

With `flush.policy=os` records are acknowledged from memory. A stop writes them to disk, and after a kill the page cache
still has them; after a power cut they may be lost. Kafka's mark is `.kafka_cleanshutdown`, which takes a kill for a
power cut. While a broker runs, the file has the boot id of the machine; after a stop it has STOPPED.
"""

from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog

RUN_FILE = "run"
STOPPED = b"stopped"
LOST = b"lost"
"""Records that were only in memory are lost, and the other brokers have not been informed yet."""


class RunMark:
    """Mark of one log directory. All methods block, and raise OSError."""

    def __init__(self, disk: Disk, directory: str, boot_id: str, *, is_new: bool) -> None:
        """Read the mark of the last run, and begin another. Without a mark only a new directory has lost nothing."""
        self._disk, self._directory, self._boot = disk, directory, boot_id.encode()
        self._path = f"{directory}/{RUN_FILE}"
        last = self._read()
        self.has_lost_memory = last not in (STOPPED, self._boot) and not (last is None and is_new)
        self._write(LOST if self.has_lost_memory else self._boot)

    def declared(self) -> None:
        """Record that the other brokers know of the possible loss."""
        if self.has_lost_memory:
            self._write(self._boot)
            self.has_lost_memory = False

    def stopped(self) -> None:
        """Record that all logs are on disk."""
        self._write(LOST if self.has_lost_memory else STOPPED)

    def _read(self) -> bytes | None:
        try:
            return checkpoint.read(self._disk, self._path)
        except DamagedLog:
            return LOST

    def _write(self, content: bytes) -> None:
        """Write the mark. If there is no room for it, remove it: no mark counts as lost memory."""
        try:
            checkpoint.write(self._disk, self._path, content)
        except OSError:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
                sync_directory(self._disk, self._directory)
