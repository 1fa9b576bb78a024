"""Clock faults: jumps of the time of day, back or ahead, under a running broker."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cordwood.chaos.live.faults.fault import Fault

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
"""libfaketime, where this machine has it. No namespace has a time of day of its own (time_namespaces(7))."""

JUMP_S_MAX = 86_400
SETTINGS = {
    # A broker whose clock is behind takes the records of producers whose clocks are right.
    "log.message.timestamp.after.max.ms": str(2 * JUMP_S_MAX * 1000),
}


class Clock:
    """The clock offset of processes that run `inside`, kept in a file that libfaketime reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set_off(0)

    def set_off(self, seconds: int) -> None:
        """Set the offset, which takes effect within a second."""
        self._path.write_text(f"{seconds:+d}\n")

    @property
    def inside(self) -> tuple[str, ...]:
        """The command prefix of a process that has this clock. Its monotonic clock is not changed."""
        return (
            "env",
            f"LD_PRELOAD={LIBRARIES[-1]}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )


@dataclass(frozen=True, slots=True)
class ClockJump(Fault):
    """A clock offset of up to a day; undone by the correct time."""

    clocks: Mapping[int, Clock]
    name: ClassVar[str] = "clock-jump"

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        seconds = rng.choice((-1, 1)) * rng.randint(1, JUMP_S_MAX)
        for victim in victims:
            self.clocks[victim].set_off(seconds)
        return f"{seconds:+,} s off the right time"

    def heal(self, victims: Sequence[int], /) -> None:
        for victim in victims:
            self.clocks[victim].set_off(0)
