"""Waits of clients, and the part of each wait that is the machine's fault and not the broker's."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NOTED_S = 0.1
"""Shorter waits are dropped: there would be a hundred in a second."""


class Wait(NamedTuple):
    """One wait of a client. Times in seconds of the monotonic clock."""

    kind: str
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


@dataclass(slots=True)
class MachineTime:
    """Samples of the time that the machine withheld, in time order.

    A client may wait because a broker or the client waits for a processor, or because the broker waits for the disk,
    which other programs use. None of this is the broker's fault, and all of it is measured during the run.
    """

    times_s: list[float] = field(default_factory=list)
    brokers_s: list[tuple[float, ...]] = field(default_factory=list)
    """The time that each broker had been runnable without a processor, up to each of the times."""
    clients_s: list[float] = field(default_factory=list)
    """The same for the clients: their thread that waited longest between two samples counts."""
    probe_s: list[float] = field(default_factory=list)
    """The duration of one write with fdatasync that ended at each of the times, its late start included."""

    def add(self, time_s: float, brokers_s: tuple[float, ...], clients_s: float, probe_s: float) -> None:
        self.times_s.append(time_s)
        self.brokers_s.append(brokers_s)
        self.clients_s.append(clients_s)
        self.probe_s.append(probe_s)

    def share_of(self, wait: Wait) -> float:
        """Return the seconds of this wait that are the machine's fault; never more than the wait."""
        if not self.times_s:
            return 0.0
        first = max(bisect_right(self.times_s, wait.began_s) - 1, 0)
        last = min(bisect_left(self.times_s, wait.ended_s), len(self.times_s) - 1)
        at_first, at_last = self.brokers_s[first], self.brokers_s[last]
        broker_s = max((after - before for before, after in zip(at_first, at_last, strict=True)), default=0.0)
        # A late probe waited for a processor as the clients did, because it shares their process.
        client_s = max(self.clients_s[last] - self.clients_s[first], *self.probe_s[first : last + 1])
        return min(broker_s + client_s, wait.seconds)


class Stall(NamedTuple):
    """A period in which clients waited, with the wait in it that the brokers are most to blame for."""

    wait: Wait
    blamed_s: float
    """The seconds of the wait that were not the machine's fault."""

    def __str__(self) -> str:
        return f"{self.wait.seconds:.2f} s for {self.wait.kind}, {self.blamed_s:.2f} s of it not the machine's"


def stalls(waits: Iterable[Wait], machine: MachineTime) -> list[Stall]:
    """Merge overlapping waits into stalls. Return them, the worst first."""
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
