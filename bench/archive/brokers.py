"""Brokers with an archive: its state over HTTP and on their disks."""

import json
import os
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordwood.bench.systems import Cordwood, SystemBroker
from cordwood.chaos.live.process import free_port
from cordwood.replication.log_directory import ARCHIVE_CACHE

ANSWER_S = 20.0
SAMPLE_S = 1.0
BLOCK_BYTES = 512


class ArchivingBrokers(Cordwood):
    """Three brokers, each with the HTTP API at a port of its own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(3, settings)
        self.http = {id_: f"127.0.0.1:{free_port()}" for id_ in range(1, self.brokers + 1)}

    def common_settings(self, member: SystemBroker) -> dict[str, str]:
        return {**super().common_settings(member), "http.listen": self.http[member.broker_id]}

    def partitions(self, topic: str) -> list[Mapping[str, Any]]:
        """Return the row of each archived partition of a topic, from its leader."""
        rows = []
        for address in self.http.values():
            with urllib.request.urlopen(f"http://{address}/v1/archive?topic={topic}", timeout=ANSWER_S) as answer:
                rows += json.load(answer)["partitions"]
        return [row for row in rows if row["backlog_bytes"] is not None]

    def backlog_bytes(self, topic: str) -> int:
        return sum(row["backlog_bytes"] for row in self.partitions(topic))

    def measure(self, name: str) -> float:
        """Return the sum of a metric without labels over the brokers."""
        total = 0.0
        for address in self.http.values():
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=ANSWER_S) as answer:
                lines = answer.read().decode().splitlines()
            total += sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"cordwood_{name} "))
        return total


class DiskUse:
    """The bytes that each broker's logs take on its disk, and the most that they took."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self.most = [0] * len(directories)
        self._closing = threading.Event()

    def now(self) -> list[int]:
        """Return the bytes of each broker, without its cache of archived records."""
        used = [sum(_sizes(directory)) for directory in self._directories]
        self.most = list(map(max, self.most, used))
        return used

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep `most` up to date within the block."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(SAMPLE_S):
            self.now()


def _sizes(directory: Path) -> Iterator[int]:
    for home, folders, names in os.walk(directory):
        if ARCHIVE_CACHE in folders:
            folders.remove(ARCHIVE_CACHE)
        for name in names:
            try:
                yield os.stat(os.path.join(home, name)).st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
