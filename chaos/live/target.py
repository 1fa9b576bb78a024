"""The target of a run: a cluster, the faults that are possible on it, and access to its log directories."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.faults.fault import Fault
from cordwood.chaos.live.histories import RawRecord

FAULTS = (
    "kill",
    "coordinator-kill",
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
"""All faults, by name."""


class CannotHarm(Exception):
    """A requested fault that is not possible on this target. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """A cluster and its faults.

    `log_directories` stops all brokers and returns each broker's log directory. None where the run has no access to
    them. `archived` returns the records of a topic (by its id) and partition below an offset, where the brokers have an
    archive.
    """

    name: str
    cluster: LiveCluster
    faults: Mapping[str, Fault]
    log_directories: Callable[[], Mapping[int, Path]] | None
    archived: Callable[[str, int, int], Sequence[RawRecord]] | None = None


def chosen(wanted: Iterable[str] | None, reasons: Mapping[str, str]) -> list[str]:
    """Return the requested faults in the order of FAULTS; all possible faults where `wanted` is None.

    `reasons` has the faults that are not possible, each with its reason. Raises CannotHarm where one of them, or an
    unknown fault, is requested.
    """
    if wanted is None:
        return [name for name in FAULTS if name not in reasons]
    names = set(wanted)
    if unknown := sorted(names - set(FAULTS)):
        raise CannotHarm(f"there is no fault {', '.join(unknown)}, only {', '.join(FAULTS)} and none")
    if refused := sorted(names & reasons.keys()):
        raise CannotHarm("; ".join(f"{name} cannot be done here: {reasons[name]}" for name in refused))
    return [name for name in FAULTS if name in names]
