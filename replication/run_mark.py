"""The mark in a log directory that says how its last run ended: by a stop, by a kill, or with the machine's memory.

With `flush.policy=os` records are acknowledged from memory. A stop writes them to disk, and the memory of the operating
system outlives a killed process; a power cut leaves neither. Kafka's mark is `.kafka_cleanshutdown`, which takes a kill
for a power cut. The file has the id of the machine's boot while a broker runs, and STOPPED after it has stopped.
"""

from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog

RUN_FILE = "run"
STOPPED = b"stopped"
LOST = b"lost"
"""What was in memory is gone, and the others do not know yet."""


class RunMark:
    """The mark of one log directory. All of it blocks, and raises OSError."""

    def __init__(self, disk: Disk, directory: str, boot_id: str, *, is_new: bool) -> None:
        """Read the mark of the last run, and begin another. Without a mark only a new directory has lost nothing."""
        self._disk, self._directory, self._boot = disk, directory, boot_id.encode()
        self._path = f"{directory}/{RUN_FILE}"
        last = self._read()
        self.has_lost_memory = last not in (STOPPED, self._boot) and not (last is None and is_new)
        self._write(LOST if self.has_lost_memory else self._boot)

    def declared(self) -> None:
        """The others know what may be gone."""
        if self.has_lost_memory:
            self._write(self._boot)
            self.has_lost_memory = False

    def stopped(self) -> None:
        """All logs are on disk."""
        self._write(LOST if self.has_lost_memory else STOPPED)

    def _read(self) -> bytes | None:
        try:
            return checkpoint.read(self._disk, self._path)
        except DamagedLog:
            return LOST

    def _write(self, content: bytes) -> None:
        """Where there is no room for a mark, there is none: that is the most careful one."""
        try:
            checkpoint.write(self._disk, self._path, content)
        except OSError:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
                sync_directory(self._disk, self._directory)
