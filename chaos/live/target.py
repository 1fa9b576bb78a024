"""What a run is aimed at: a cluster, the harm that can be done to it here, and whether its disks may be read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.faults.fault import Fault

FAULTS = (
    "kill",
    "pause",
    "partition",
    "power-cut",
    "disk-full",
    "fsync-error",
    "bit-flip",
    "wipe",
    "rolling-restart",
    "clock-jump",
)
"""All that there are, by name."""


class CannotHarm(Exception):
    """Something that was asked for cannot be done here. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Target:
    """`log_directories` stops all brokers and returns what each of them has on disk; None where nobody may do that."""

    name: str
    cluster: LiveCluster
    faults: Mapping[str, Fault]
    log_directories: Callable[[], Mapping[int, Path]] | None


def chosen(wanted: Iterable[str] | None, reasons: Mapping[str, str]) -> list[str]:
    """The faults that were asked for, in a fixed order; all that can be done where none was named.

    `reasons` say of the others why they cannot. Raises CannotHarm.
    """
    if wanted is None:
        return [name for name in FAULTS if name not in reasons]
    names = set(wanted)
    if unknown := sorted(names - set(FAULTS)):
        raise CannotHarm(f"there is no fault {', '.join(unknown)}, only {', '.join(FAULTS)} and none")
    if refused := sorted(names & reasons.keys()):
        raise CannotHarm("; ".join(f"{name} cannot be done here: {reasons[name]}" for name in refused))
    return [name for name in FAULTS if name in names]
