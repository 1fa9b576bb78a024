"""Hunting one mutant: a copy of the package with the change in it, a process that lives on it, and its outcome."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import cordwood
from cordwood.chaos.mutants.chase import Chase
from cordwood.chaos.mutants.mutant import Mutant, Stale, Story

SEEDS_MAX = 1_000_000
STDERR_LINES = 3


class Verdict(StrEnum):
    """What is to be said of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"
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


async def hunt(mutant: Mutant, hours: float, stories: Sequence[Story] = ()) -> Outcome:
    """Tell it one story after the other, each until it is caught or for so many simulated hours; by default its own.

    After its own come whole brokers.
    """
    seeds, simulated_s = 0, 0.0
    try:
        for story in stories or dict.fromkeys((mutant.story, Story.BROKERS)):
            found = await chase_copy(mutant, story, hours)
            seeds, simulated_s = seeds + found.seeds, simulated_s + found.simulated_s
            if found.is_caught:
                healthy = await chase_copy(None, story, hours, first_seed=found.seed, seeds_max=1)
                verdict = Verdict.UNFIT if healthy.is_caught else Verdict.CAUGHT
                what = f"it fails without it too: {healthy.what}" if healthy.is_caught else found.what
                return Outcome(mutant, verdict, what, story, found.seed, seeds, simulated_s)
    except Stale as stale:
        return Outcome(mutant, Verdict.STALE, str(stale))
    except ChildFailed as failed:
        return Outcome(mutant, Verdict.UNFIT, str(failed))
    return Outcome(
        mutant, Verdict.HARMLESS if mutant.harmless else Verdict.SURVIVED, "", seeds=seeds, simulated_s=simulated_s
    )


class ChildFailed(Exception):
    """The process on the copy came to no outcome."""


async def chase_copy(
    change: Mutant | None, story: Story, hours: float, first_seed: int = 1, seeds_max: int = SEEDS_MAX
) -> Chase:
    """Run `chase` on a copy of this package with the change in it, if any. Raises Stale or ChildFailed."""
    with tempfile.TemporaryDirectory(prefix="cordwood-mutant-") as place:
        copy = copied(Path(place), change)
        arguments = (story, str(hours), str(first_seed), str(seeds_max))
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cordwood.chaos.mutants.chase",
            *arguments,
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
    shutil.copytree(source, copy)
    if change is not None:
        changed = copy / change.file
        changed.write_text(change.applied_to(changed.read_text()))
    return copy
