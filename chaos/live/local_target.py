"""A target of three local brokers, each with its own disk, network and clock where the faults need them."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cordwood.chaos.live import network
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults import bit_flip, clocks, disks, links, processes
from cordwood.chaos.live.faults.clocks import Clock
from cordwood.chaos.live.faults.fault import Fault
from cordwood.chaos.live.file_systems import LoopFileSystem, MemoryFileSystem
from cordwood.chaos.live.network import NamespaceNetwork
from cordwood.chaos.live.target import FaultTarget

BROKERS = 3
NEED_DISKS = frozenset({"power-cut", "disk-full", "fsync-error"})
DISK_BYTES = 2 << 30
"""The size of a broker's disk, besides the stored bytes."""
DEVICE_SHARE = 0.9
"""The size of a device in memory, as a share of its disk's: the device can be full while the disk has free space."""

KINDS: Mapping[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        processes.Kill,
        processes.CoordinatorKill,
        processes.Pause,
        processes.RollingRestart,
        links.NetworkPartition,
        disks.PowerCut,
        disks.FullDisk,
        disks.SyncError,
        disks.Wipe,
        bit_flip.BitFlip,
        clocks.ClockJump,
    )
}
"""The class of each fault."""


def reasons() -> dict[str, str]:
    """Return the faults that are not possible on this machine, each with its reason."""
    found = {}
    if reason := network.why_not():
        found["partition"] = reason
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        found |= dict.fromkeys(NEED_DISKS, "each broker needs a file system of its own, made by root with mkfs.ext4")
    if not clocks.LIBRARIES:
        found["clock-jump"] = "no namespace has a time of day of its own, and libfaketime is not installed"
    return found


def enter(faults: Sequence[str]) -> None:
    """Restart this program in its own network namespace where a fault needs one. Raises NetworkUnavailable."""
    if "partition" in faults:
        network.enter()


@contextmanager
def opened(
    place: Path,
    faults: Sequence[str],
    stored_bytes: int,
    brokers: int = BROKERS,
    rest_s: float = 0.0,
    *,
    is_kept: bool = False,
) -> Iterator[FaultTarget]:
    """Yield the brokers, not started yet. Everything made here but files in `place` is removed at the end of the block.

    A broker stores at most `stored_bytes`. `rest_s` is the pause between two restarts of a rolling restart. With
    `is_kept`, the images of disks in memory are copied to `place`. Raises CannotMount, NetworkUnavailable.
    """
    ids = range(1, brokers + 1)
    with ExitStack() as stack:
        file_systems = _disks(place, faults, DISK_BYTES + stored_bytes, ids, stack, is_kept=is_kept)
        nets = NamespaceNetwork(ids) if "partition" in faults else None
        times = {id_: Clock(place / f"clock-{id_}") for id_ in ids} if "clock-jump" in faults else {}
        cluster = LocalCluster(
            place,
            brokers,
            settings={**bit_flip.SETTINGS, **clocks.SETTINGS},
            hosts={id_: nets.address(id_) for id_ in ids} if nets else None,
            inside={id_: (*(nets.inside(id_) if nets else ()), *(times[id_].inside if times else ())) for id_ in ids},
            disks={id_: disk.path for id_, disk in file_systems.items()},
        )
        stack.callback(cluster.kill)
        makers = _makers(cluster, file_systems, nets, times, rest_s)

        def log_directories() -> Mapping[int, Path]:
            cluster.stop()
            return cluster.data

        yield FaultTarget("local", cluster, {name: makers[name]() for name in faults}, log_directories)


def _makers(
    cluster: LocalCluster,
    file_systems: Mapping[int, LoopFileSystem],
    nets: NamespaceNetwork | None,
    times: Mapping[int, Clock],
    rest_s: float,
) -> Mapping[str, Callable[[], Fault]]:
    def partition() -> Fault:
        assert nets is not None, "a partition needs a network of its own"
        return links.NetworkPartition(links.Links(nets.ways, nets.heal))

    return {
        "kill": lambda: processes.Kill(cluster),
        "coordinator-kill": lambda: processes.CoordinatorKill(cluster),
        "pause": lambda: processes.Pause(cluster),
        "rolling-restart": lambda: processes.RollingRestart(cluster, rest_s),
        "partition": partition,
        "power-cut": lambda: disks.PowerCut(cluster, file_systems),
        "disk-full": lambda: disks.FullDisk(file_systems),
        "fsync-error": lambda: disks.SyncError(cluster, file_systems),
        "bit-flip": lambda: bit_flip.BitFlip(cluster),
        "wipe": lambda: disks.Wipe(cluster, cluster.wiped, cluster.data),
        "clock-jump": lambda: clocks.ClockJump(times),
    }


def _disks(
    place: Path, faults: Sequence[str], size_bytes: int, ids: Sequence[int], stack: ExitStack, *, is_kept: bool
) -> dict[int, LoopFileSystem]:
    """Mount a file system for each broker, where a fault needs one."""
    if not NEED_DISKS & set(faults):
        return {}
    mounted = {}
    for id_ in ids:
        home = place / f"disk-{id_}"
        home.mkdir()
        device = None
        if "fsync-error" in faults:
            memory = MemoryFileSystem(home / "device", int(size_bytes * DEVICE_SHARE), home if is_kept else None)
            device = stack.enter_context(memory).path
        mounted[id_] = stack.enter_context(LoopFileSystem(home, size_bytes, device))
    return mounted
