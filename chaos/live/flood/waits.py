"""Waits of clients, and the part of each that the machine and not the broker is to blame for."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NOTED_S = 0.1
"""Shorter waits are not kept: there would be a hundred of them in a second."""


class Wait(NamedTuple):
    """What a client waited for. Times in seconds of the monotonic clock."""

    kind: str
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


@dataclass(slots=True)
class MachineTime:
    """Samples of what the machine withheld, in the order of their times.

    A client may wait because a broker or the client waits for a processor, or the broker for the disk, which other
    programs keep busy. None of it is a fault of the broker, and all of it is measured beside it.
    """

    times_s: list[float] = field(default_factory=list)
    brokers_s: list[tuple[float, ...]] = field(default_factory=list)
    """For how long each broker had been runnable without a processor up to each of the times."""
    clients_s: list[float] = field(default_factory=list)
    """The same of the clients: of that of their threads which waited longest between two samples."""
    probe_s: list[float] = field(default_factory=list)
    """How long one write with fdatasync took that ended at each of the times, and how late it began."""

    def add(self, time_s: float, brokers_s: tuple[float, ...], clients_s: float, probe_s: float) -> None:
        self.times_s.append(time_s)
        self.brokers_s.append(brokers_s)
        self.clients_s.append(clients_s)
        self.probe_s.append(probe_s)

    def share_of(self, wait: Wait) -> float:
        """Seconds of this wait that the machine is to blame for; never more than the wait."""
        if not self.times_s:
            return 0.0
        first = max(bisect_right(self.times_s, wait.began_s) - 1, 0)
        last = min(bisect_left(self.times_s, wait.ended_s), len(self.times_s) - 1)
        at_first, at_last = self.brokers_s[first], self.brokers_s[last]
        broker_s = max((after - before for before, after in zip(at_first, at_last, strict=True)), default=0.0)
        # A late probe waited for a processor as the clients did, whose process it shares.
        client_s = max(self.clients_s[last] - self.clients_s[first], *self.probe_s[first : last + 1])
        return min(broker_s + client_s, wait.seconds)


class Stall(NamedTuple):
    """A time in which clients waited, by the wait of it that the brokers are most to blame for."""

    wait: Wait
    blamed_s: float
    """The seconds of the wait that were not the machine's."""

    def __str__(self) -> str:
        return f"{self.wait.seconds:.2f} s for {self.wait.kind}, {self.blamed_s:.2f} s of it not the machine's"


def stalls(waits: Iterable[Wait], machine: MachineTime) -> list[Stall]:
    """Waits that overlap are one stall. The worst comes first."""
    found: list[Stall] = []
    end_s = 0.0
    for wait in sorted(waits, key=lambda wait: wait.began_s):
        stall = Stall(wait, wait.seconds - machine.share_of(wait))
        if found and wait.began_s <= end_s:
            found[-1] = max(found[-1], stall, key=lambda each: each.blamed_s)
        else:
            found.append(stall)
        end_s = max(end_s, wait.ended_s)
    return sorted(found, key=lambda stall: stall.blamed_s, reverse=True)
