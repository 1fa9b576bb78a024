"""Transactional ids of a process: unique among all tasks that may have an open transaction, and still few.

Transactional ids made of query and task would not be safe. Spark may start a task again while another attempt of it has
prepared its transaction: the late attempt would fence a transaction that the driver is committing. Ids that are never
used again would be safe, but coordinators remember each for days.

So a process leases a file of the machine by a lock, which ends with the process. The random name of the file is part of
its ids. A lease can be taken over once the last transaction below it must have ended by its timeout.
"""

import fcntl
import os
import re
import tempfile
import time
from pathlib import Path

from cordwood.spark.exactly_once.writes import WriteId

PREFIX = "cordwood-spark"
COMMITS = "commits"
NO_DESCRIPTOR, NO_PROCESS = -1, 0
_LEASE_BYTES = 6
_OF_A_TASK = re.compile(rf"[0-9a-f]{{{2 * _LEASE_BYTES}}}:\d+")


class Leases:
    """The lease of this process, and the transactional ids that are taken below it."""

    def __init__(self, directory: Path) -> None:
        """Take the directory of the machine's leases. Take no lease yet."""
        self._directory = directory
        self._descriptor, self._pid, self._lease = NO_DESCRIPTOR, NO_PROCESS, ""
        self._taken: dict[str, tuple[int, int]] = {}
        """The newest version of each write, and the last number taken for it."""

    def transactional_id(self, write: WriteId, timeout_ms: int) -> str:
        """Return an id for a new transaction of a task of this write.

        The ids of older versions are used again: a version begins when all transactions of the last one have ended.
        """
        if self._pid != os.getpid():
            # A forked process would share its parent's lock.
            self.release()
            self._lease_one()
        ends_s = max(time.time() + timeout_ms / 1000, os.fstat(self._descriptor).st_mtime)
        os.utime(self._descriptor, (ends_s, ends_s))
        version, number = self._taken.get(write.name, (write.version, -1))
        number = 0 if write.version > version else number + 1
        self._taken[write.name] = max(version, write.version), number
        return f"{PREFIX}:{write.name}:{self._lease}:{number}"

    def release(self) -> None:
        """Release the lease, as the end of the process does."""
        if self._descriptor != NO_DESCRIPTOR:
            os.close(self._descriptor)
        self._descriptor, self._pid, self._taken = NO_DESCRIPTOR, NO_PROCESS, {}

    def _lease_one(self) -> None:
        """Lease the first free file whose transactions have ended, or a new one."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in sorted(os.listdir(self._directory)):
            if self._is_leased(name, os.O_RDWR):
                return
        # A name is created once: the file of a living process may have been deleted.
        while not self._is_leased(os.urandom(_LEASE_BYTES).hex(), os.O_RDWR | os.O_CREAT | os.O_EXCL):
            pass

    def _is_leased(self, name: str, flags: int) -> bool:
        try:
            descriptor = os.open(self._directory / name, flags | os.O_CLOEXEC, 0o600)
        except (FileNotFoundError, FileExistsError):
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        if os.fstat(descriptor).st_mtime > time.time():
            os.close(descriptor)
            return False
        self._descriptor, self._pid, self._lease = descriptor, os.getpid(), name
        return True


leases = Leases(Path(tempfile.gettempdir()) / f"{PREFIX}-{os.getuid()}")
"""The leases of this machine."""


def decider_of(name: str) -> str:
    """Return the transactional id with which the drivers of a write decide, one at a time."""
    return f"{PREFIX}:{name}:{COMMITS}"


def is_of_a_task(transactional_id: str, name: str) -> bool:
    """Return whether this is the id of a task of the write with this name."""
    prefix = f"{PREFIX}:{name}:"
    return transactional_id.startswith(prefix) and _OF_A_TASK.fullmatch(transactional_id[len(prefix) :]) is not None
