"""Procedures of the operators' pages that replace a disk, a directory or a voter, each with a SIGKILL in its middle.

The procedure is carried on to its end afterwards, with the same commands.
"""

import json
import random
import shutil
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.fault import Fault
from cordwood.chaos.live.figures import Figures
from cordwood.chaos.live.process import run_cordwood, wait_for

MIDDLE_S = 3.0
"""The longest time from the start of a procedure to the kill: undisturbed, each takes about as long."""
COMMAND_S = 90.0
REPLACED_S = 60.0
VOTER_REPLACED_S = "voter_replaced_s"
"""Time from the start of all brokers to the end of the replacement that a kill had interrupted."""


@dataclass(slots=True)
class Replacement(Fault):
    """The part that all procedures share. Victims are the brokers whose part is replaced."""

    cluster: LocalCluster
    is_alone: ClassVar[bool] = True

    def heal(self, _victims: Sequence[int], /) -> None:
        self.cluster.begin(id_ for id_, broker in self.cluster.brokers.items() if not broker.is_running)

    def kill_one_of(self, ids: Sequence[int], rng: random.Random) -> str:
        """Kill one of the brokers at a random moment of the procedure. Return a description."""
        later_s, struck = rng.uniform(0, MIDDLE_S), rng.choice(ids)
        time.sleep(later_s)
        self.cluster.brokers[struck].kill()
        return f"broker {struck} killed {later_s * 1000:.0f} ms after that"


@dataclass(slots=True)
class DataReplacement(Replacement):
    """A broker that starts without data that it had: it is killed meanwhile, or one that it fetches from."""

    lack: ClassVar[str]
    """What the broker starts with, or without."""

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        [victim] = victims
        self.lose(victim)
        self.cluster.brokers[victim].begin()
        return f"started {self.lack}, {self.kill_one_of([victim, *self.cluster.ids], rng)}"

    @abstractmethod
    def lose(self, victim: int) -> None:
        """Kill the broker, and delete its data."""


@dataclass(slots=True)
class DiskReplacement(DataReplacement):
    """A broker that starts with empty disks."""

    name: ClassVar[str] = "disk-replacement"
    lack: ClassVar[str] = "with empty disks"

    def lose(self, victim: int) -> None:
        self.cluster.wiped(victim)


@dataclass(slots=True)
class DirectoryReplacement(DataReplacement):
    """A broker that starts without the contents of its second log directory."""

    name: ClassVar[str] = "directory-replacement"
    lack: ClassVar[str] = "without its second directory"

    def lose(self, victim: int) -> None:
        self.cluster.brokers[victim].kill()
        shutil.rmtree(self.cluster.second_disks[victim])


@dataclass(slots=True)
class VoterReplacement(Replacement):
    """`cordwood quorum replace OLD NEW`, of the victim; it, the new voter or the leader is killed."""

    old: int = -1
    new: int = -1
    name: ClassVar[str] = "voter-replacement"

    def strike(self, victims: Sequence[int], rng: random.Random, /) -> str:
        leader, voters = quorum_of(self.cluster)
        self.old = victims[0] if victims[0] in voters else rng.choice(voters)
        self.new = next(id_ for id_ in self.cluster.ids if id_ not in voters)
        command = (sys.executable, "-m", "cordwood.cluster.cli", *self._command("replace", self.old, self.new))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            killed = self.kill_one_of([self.old, self.new, leader], rng)
            running.wait(COMMAND_S)
        return f"voter {self.old} is replaced by {self.new}, {killed}"

    def settle(self, _victims: Sequence[int], figures: Figures, /) -> None:
        """Repeat what is left of the procedure until the voter is replaced. Raises NotInTime."""
        began_s, refused = time.monotonic(), ""

        def is_replaced() -> bool:
            nonlocal refused
            _, voters = quorum_of(self.cluster)
            if self.new in voters and self.old not in voters:
                return True
            ids = (self.old,) if self.new in voters else (self.old, self.new)
            refused = run_cordwood(*self._command("remove" if self.new in voters else "replace", *ids)).stderr
            return False

        if not wait_for(is_replaced, REPLACED_S):
            raise NotInTime(f"voter {self.old} was not replaced by {self.new} within {REPLACED_S:.0f} s:\n{refused}")
        figures.add(VOTER_REPLACED_S, time.monotonic() - began_s)

    def _command(self, name: str, *ids: int) -> tuple[str, ...]:
        return ("quorum", name, *map(str, ids), "-b", self.cluster.bootstrap)


def quorum_of(cluster: LocalCluster) -> tuple[int, list[int]]:
    """Return the leader and the voters by `cordwood quorum status`. Raises NotInTime."""
    seen = run_cordwood("quorum", "status", "--json", "-b", cluster.bootstrap)
    if seen.returncode:
        raise NotInTime(f"the quorum is not described: {seen.stderr}")
    described = json.loads(seen.stdout)
    voters = [member["broker"] for member in described["members"] if member["role"] != "observer"]
    return described["leader"] or voters[0], voters
