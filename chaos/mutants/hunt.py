"""Hunting one mutant: a copy of the package with the change in it, a process that lives on it, and its outcome."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

import cordwood
from cordwood.chaos.mutants.chase import Chase, Limits
from cordwood.chaos.mutants.mutant import Mutant, Stale, Story

STDERR_LINES = 3
LEFT_OUT = shutil.ignore_patterns("bench", "spark")
"""No story needs them."""


class Verdict(StrEnum):
    """What is to be said of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    """All its simulated hours."""
    UNDECIDED = "undecided"
    """The real time that was given to it was over before that."""
    HARMLESS = "harmless"
    """It survived, and the catalogue says why nobody can notice it."""
    STALE = "stale"
    """Its text is not in the source any more."""
    UNFIT = "unfit"
    """It does not run at all, or the source fails with the same seed: neither says anything about the mutant."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mutant's verdict: by what it was caught, or for how long it was not."""

    mutant: Mutant
    verdict: Verdict
    what: str
    story: Story | None = None
    """In which it was caught, with which seed; `seeds` and `simulated_s` count all stories up to then."""
    seed: int = 0
    seeds: int = 0
    simulated_s: float = 0.0


class Hunt:
    """Hunts mutants, each within the same limits for each of its stories."""

    def __init__(self, limits: Limits, stories: Sequence[Story] = ()) -> None:
        """`stories` takes the place of those in which a mutant is expected to show: its own, then whole brokers."""
        self._limits, self._stories = limits, stories
        self._healthy: dict[tuple[Story, int], Chase] = {}

    async def run(self, mutant: Mutant) -> Outcome:
        """Tell it one story after the other, until it is caught."""
        try:
            return await self._chased(mutant)
        except Stale as stale:
            return Outcome(mutant, Verdict.STALE, str(stale))
        except ChildFailed as failed:
            return Outcome(mutant, Verdict.UNFIT, str(failed))

    async def _chased(self, mutant: Mutant) -> Outcome:
        seeds, simulated_s, is_cut_short = 0, 0.0, False
        for story in self._stories or dict.fromkeys((mutant.story, Story.BROKERS)):
            found = await chase_copy(mutant, story, self._limits)
            seeds, simulated_s = seeds + found.seeds, simulated_s + found.simulated_s
            is_cut_short |= found.is_cut_short
            if found.is_caught:
                healthy = await self._without_it(story, found.seed)
                verdict = Verdict.UNFIT if healthy.is_caught else Verdict.CAUGHT
                what = f"it fails without it too: {healthy.what}" if healthy.is_caught else found.what
                return Outcome(mutant, verdict, what, story, found.seed, seeds, simulated_s)
        verdict = Verdict.UNDECIDED if is_cut_short else Verdict.SURVIVED
        return Outcome(mutant, Verdict.HARMLESS if mutant.harmless else verdict, "", None, 0, seeds, simulated_s)

    async def _without_it(self, story: Story, seed: int) -> Chase:
        """The same seed on the source as it is. Most mutants are caught by the same few."""
        if (story, seed) not in self._healthy:
            one = replace(self._limits, first_seed=seed, seeds_max=1)
            self._healthy[story, seed] = await chase_copy(None, story, one)
        return self._healthy[story, seed]


class ChildFailed(Exception):
    """The process on the copy came to no outcome."""


async def chase_copy(change: Mutant | None, story: Story, limits: Limits) -> Chase:
    """Run `chase` on a copy of this package with the change in it, if any. Raises Stale or ChildFailed."""
    with tempfile.TemporaryDirectory(prefix="cordwood-mutant-") as place:
        copy = copied(Path(place), change)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cordwood.chaos.mutants.chase",
            story,
            json.dumps(asdict(limits)),
            cwd=place,
            # Hashes of texts decide the order of sets: the seed alone is to decide what happens.
            env={**os.environ, "PYTHONPATH": place, "PYTHONHASHSEED": "0"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await child.communicate()
        except asyncio.CancelledError:
            child.kill()
            await child.wait()
            raise
        if child.returncode != 0:
            raise ChildFailed(" / ".join(errors.decode().strip().splitlines()[-STDERR_LINES:]))
        found = Chase(**json.loads(output.splitlines()[-1]))
        assert Path(found.package).samefile(copy), f"the code came from {found.package}, and not from the copy"
        return found


def copied(place: Path, change: Mutant | None) -> Path:
    """A copy of this package below `place`, with the change in it. Raises Stale."""
    source, copy = Path(cordwood.__path__[0]), place / "cordwood"
    # With what is compiled already: only the file that is changed has to be compiled again.
    shutil.copytree(source, copy, ignore=LEFT_OUT)
    if change is not None:
        changed = copy / change.file
        changed.write_text(change.applied_to(changed.read_text()))
    return copy
