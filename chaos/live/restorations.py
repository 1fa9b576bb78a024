"""Restorations of a whole cluster from its archive, each killed at a random step and repeated."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.replication.log_directory import MARKS_FILE
from cordwood.storage.flushed_offsets import SLOT_BYTES

END_S = 120.0
POLL_S = 0.001
TRIES_MAX = 5


class Restorations:
    """The restorations of a stopped cluster. `killed` counts the commands that were killed before their end."""

    def __init__(
        self, cluster: LocalCluster, store: tuple[str, ...], rng: random.Random, report: Callable[[str], None]
    ) -> None:
        self._cluster, self._store, self._rng, self._report = cluster, store, rng, report
        self.killed = self.files = 0

    def run(self, kills: int) -> Iterator[Anomaly]:
        """Yield an anomaly for each file that a repeated restoration leaves otherwise than one without a kill."""
        self._wipe()
        code, said = self._restore(None)
        if code:
            yield Anomaly("not-restored", f"The archive could not be restored: {said}", (), 1)
            return
        due = self._contents()
        self.files = len(due)
        while self.killed < kills:
            self._wipe()
            tries = 0
            while tries < TRIES_MAX and self.killed < kills:
                tries += 1
                code, said = self._restore(self._rng.randint(1, self.files))
                if code >= 0:
                    break
                self.killed += 1
            else:
                code, said = self._restore(None)
            if code:
                yield Anomaly("not-restored", f"A repeated restoration failed: {said}", (), 1)
                return
            found = self._contents()
            for name in sorted(due.keys() | found.keys()):
                if due.get(name) != found.get(name):
                    yield Anomaly("restored-otherwise", f"{name} differs after a killed restoration.", (), 1)
            self._report(f"{self.killed} of {kills} restorations killed")

    def _wipe(self) -> None:
        for directory in self._cluster.data.values():
            shutil.rmtree(directory, ignore_errors=True)

    def _restore(self, files: int | None) -> tuple[int, str]:
        """Restore, and kill the command once it has made so many files. Return its exit code and output."""
        places = [word for id_, path in self._cluster.data.items() for word in ("--log-dir", f"{id_}={path}")]
        command = [sys.executable, "-m", "cordwood.cluster.cli", "archive", "restore", *self._store, *places]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=os.path.sep
        ) as process:
            while files is not None and process.poll() is None:
                if sum(1 for _ in self._names()) >= files:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(POLL_S)
            said, _ = process.communicate(timeout=END_S)
        return process.returncode, said[-1000:]

    def _contents(self) -> dict[str, str]:
        return {str(path): hashlib.blake2b(_content_of(path)).hexdigest() for path in self._names()}

    def _names(self) -> Iterator[Path]:
        for directory in self._cluster.data.values():
            for home, _, names in os.walk(directory):
                for name in names:
                    yield Path(home, name)


def _content_of(path: Path) -> bytes:
    """Return the content of a file; that of flushed offsets without the order of its entries, which are by chance."""
    content = path.read_bytes()
    if path.name != MARKS_FILE:
        return content
    return b"".join(sorted(content[at : at + SLOT_BYTES] for at in range(0, len(content), SLOT_BYTES)))
