"""Disk faults of one broker: power cut, full disk, failed fdatasync, bit rot, and a lost log directory."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.fault import Fault
from cordwood.chaos.live.flip_replicas import WHILE_RUNNING, choose
from cordwood.chaos.live.power_cut import LoopFileSystem


@dataclass(frozen=True, slots=True)
class PowerCut(Fault):
    """Loss of all unsynced writes, and of the process."""

    cluster: LiveCluster
    disks: Mapping[int, LoopFileSystem]
    name: ClassVar[str] = "power-cut"
    may_strike_all: ClassVar[bool] = True

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


@dataclass(frozen=True, slots=True)
class BitFlip(Fault):
    """A file damaged or removed while the broker is down, or a sealed segment while the broker runs."""

    cluster: LocalCluster
    kinds: Sequence[str]
    name: ClassVar[str] = "bit-flip"
    is_alone: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        [victim] = victims
        broker, kind = self.cluster.brokers[victim], rng.choice(self.kinds)
        if not kind.endswith(WHILE_RUNNING):
            rng.choice((broker.kill, broker.stop))()
        harm = choose(broker.data, kind, rng)
        for one in harm:
            one.apply(broker.data)
        return f"{kind}: {', '.join(map(str, harm)) or 'there is none yet'}"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.begin(victim for victim in victims if not self.cluster.brokers[victim].is_running)


@dataclass(frozen=True, slots=True)
class Wipe(Fault):
    """A killed broker whose log directory is deleted."""

    cluster: LiveCluster
    wipe: Callable[[int], None]
    name: ClassVar[str] = "wipe"
    is_alone: ClassVar[bool] = True

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        for victim in victims:
            self.wipe(victim)
        return "with an empty disk"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.begin(victims)
