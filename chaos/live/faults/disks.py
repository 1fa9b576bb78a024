"""Disk faults of a broker: power cut, full disk, failed fdatasync, and a lost log directory."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.faults.fault import AT_ONCE_S, NO_ACK_BY_NONE, NOTHING_TWICE, P99_RATIO, Fault, RoundOptions
from cordwood.chaos.live.figures import Figures, ValueLimit
from cordwood.chaos.live.file_systems import LoopFileSystem
from cordwood.chaos.live.plan import TargetRole

REFETCH_MB_S = "refetch_mb_s"
REFETCHED_MB_MIN = 1000
"""Of less data the refetch rate is not measured: the start of the broker takes most of the time."""
MB = 10**6


@dataclass(frozen=True, slots=True)
class PowerCut(Fault):
    """Loss of all unsynced writes, and of the process."""

    cluster: LiveCluster
    disks: Mapping[int, LoopFileSystem]
    name: ClassVar[str] = "power-cut"
    may_strike_all: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(NO_ACK_BY_NONE, NOTHING_TWICE),
        roles=(TargetRole.EVERYONE, TargetRole.ANYONE),
        hold_s=AT_ONCE_S,
        is_survived=True,
    )

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.disks[victim].cut_power()
        for victim in victims:
            self.cluster.brokers[victim].kill()
        return "without power"

    def heal(self, victims: Sequence[int], /) -> None:
        for victim in victims:
            self.disks[victim].restore_power()
        self.cluster.begin(victims)


@dataclass(frozen=True, slots=True)
class FullDisk(Fault):
    """A disk whose free space another program has taken, and gives back. The broker must keep running."""

    disks: Mapping[int, LoopFileSystem]
    name: ClassVar[str] = "disk-full"
    is_alone: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.disks[victim].fill()
        return "with a full disk"

    def heal(self, victims: Sequence[int], /) -> None:
        for victim in victims:
            self.disks[victim].make_room()


@dataclass(frozen=True, slots=True)
class SyncError(Fault):
    """A device that takes no more writes: fdatasync fails once, and the unsynced writes are lost."""

    cluster: LiveCluster
    disks: Mapping[int, LoopFileSystem]
    name: ClassVar[str] = "fsync-error"
    is_alone: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.disks[victim].starve()
        return "with a device that refuses writes"

    def heal(self, victims: Sequence[int], /) -> None:
        for victim in victims:
            self.cluster.brokers[victim].kill()
            self.disks[victim].feed()
        self.cluster.begin(victims)


@dataclass(slots=True)
class Wipe(Fault):
    """A killed broker whose log directory is deleted. `data` has the log directories that this program can read."""

    cluster: LiveCluster
    wipe: Callable[[int], None]
    data: Mapping[int, Path]
    started_s: float = 0.0
    """The time of the last start on an empty directory."""
    name: ClassVar[str] = "wipe"
    is_alone: ClassVar[bool] = True
    rounds: ClassVar[RoundOptions] = RoundOptions(
        limits=(ValueLimit(REFETCH_MB_S, 60, is_least=True), ValueLimit(P99_RATIO, 2), NOTHING_TWICE),
        calm_s=(10.0, 10.0),
        hold_s=AT_ONCE_S,
        is_survived=True,
        preload_mb=2000,
    )

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.wipe(victim)
        return "with an empty disk"

    def heal(self, victims: Sequence[int], /) -> None:
        self.started_s = time.monotonic()
        self.cluster.begin(victims)

    def settle(self, victims: Sequence[int], figures: Figures, /) -> None:
        self.cluster.wait_in_sync()
        lasted_s = time.monotonic() - self.started_s
        for victim in victims:
            size_mb = _size_bytes(self.data[victim]) / MB if victim in self.data else 0
            if size_mb >= REFETCHED_MB_MIN:
                figures.add(REFETCH_MB_S, size_mb / lasted_s)


def _size_bytes(data: Path) -> int:
    """Return the bytes of all files, without the space preallocated past their ends."""
    files = [path.stat() for path in data.rglob("*") if path.is_file()]
    return sum(min(each.st_size, each.st_blocks * 512) for each in files)
