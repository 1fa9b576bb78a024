"""SIGKILL of a broker while it uploads to the archive, or compacts a log."""

import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.fault import Fault
from cordwood.chaos.live.process import wait_for
from cordwood.replication.log_directory import STAGING

BUSY_S = 60.0
LATER_S = 0.06
"""At most so long after the broker is seen at work: until its next step, or the one after that."""
ANSWER_S = 5.0
COMPACTING = "compaction-*"


@dataclass(frozen=True, slots=True)
class BusyKill(Fault):
    """SIGKILL at a moment when `is_busy`; undone by a start on the same data."""

    cluster: LocalCluster
    is_busy: Callable[[LocalCluster, int], bool]
    name: ClassVar[str] = "archive-kill"

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        for victim in victims:
            if not wait_for(lambda victim=victim: self.is_busy(self.cluster, victim), BUSY_S):  # type: ignore[misc]
                raise NotInTime(f"broker {victim} did nothing of that kind for {BUSY_S:.0f} s")
            later_s = rng.uniform(0, LATER_S)
            time.sleep(later_s)
            self.cluster.brokers[victim].kill()
        return f"killed {later_s * 1000:.0f} ms after it was seen {self.is_busy.__name__.removeprefix('is_')}"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.begin(victims)


def is_uploading(cluster: LocalCluster, id_: int) -> bool:
    """Return whether a broker has announced an upload that is not complete."""
    return any(row["uploads"] for row in led_rows(cluster, id_))


def is_compacting(cluster: LocalCluster, id_: int) -> bool:
    """Return whether a broker is writing a compacted segment."""
    staging = Path(cluster.data[id_]) / STAGING
    try:
        return any(any(directory.iterdir()) for directory in staging.glob(COMPACTING))
    except FileNotFoundError:
        return False


def led_rows(cluster: LocalCluster, id_: int) -> list[Mapping[str, Any]]:
    """Return a broker's rows of the archive of the partitions that it leads; none if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{cluster.http_addresses[id_]}/v1/archive", timeout=ANSWER_S) as answer:
            rows = json.load(answer)["partitions"]
    except (OSError, urllib.error.URLError, ValueError):
        return []
    return [row for row in rows if row["leader"] == id_]
