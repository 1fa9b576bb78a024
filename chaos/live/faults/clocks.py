"""Faults of the clock: the time of day jumps, back or ahead, below a broker that runs."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cordwood.chaos.live.faults.fault import Fault

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
"""libfaketime, where this machine has it. No namespace has a time of day of its own (time_namespaces(7))."""

JUMP_S_MAX = 86_400


class Clock:
    """A file by which a process that runs `inside` is told how far its clock is off."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set_off(0)

    def set_off(self, seconds: int) -> None:
        """From within a second on."""
        self._path.write_text(f"{seconds:+d}\n")

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that is to have this clock. Its monotonic clock stays true."""
        return (
            "env",
            f"LD_PRELOAD={LIBRARIES[-1]}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )


@dataclass(frozen=True, slots=True)
class ClockJump(Fault):
    """Up to a day off; healed by the right time."""

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
