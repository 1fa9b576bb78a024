"""Hunt of one mutant: a copy of the package with the change, a child process that runs the copy, and the outcome."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import cordwood
from cordwood.chaos.mutants.chase import Chase, ChaseLimits
from cordwood.chaos.mutants.killers import ROOT, Killer, PytestFile, Seeds
from cordwood.chaos.mutants.mutant import Mutant, Stale
from cordwood.chaos.mutants.tested import Tested

STDERR_LINES = 3
SCENARIO_S = 1800.0
"""Real seconds that a scenario may take for all its seeds."""
TESTS_S = 600.0
"""Real seconds that test files may take; they need a few."""
LEFT_OUT = shutil.ignore_patterns("*.pyc.*")
"""Temporary files of a process that compiles a module meanwhile."""


class MutantVerdict(StrEnum):
    """The result of one hunt."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    """The killer did not fail: not within its seeds, or no test of its file. Also a mutant without a killer."""
    UNDECIDED = "undecided"
    """The real time limit passed before a result."""
    STALE = "stale"
    """The mutant's text is not in the source any more."""
    UNFIT = "unfit"
    """The mutant does not run at all, or the unchanged source fails in the same way: no result."""


@dataclass(frozen=True, slots=True)
class MutantOutcome:
    """One mutant's verdict, with the failure that caught it or the effort that did not.

    `seed` is the one that caught the mutant, of `seeds` that were tried; 0 where no scenario caught it.
    """

    mutant: Mutant
    killer: Killer | None
    verdict: MutantVerdict
    what: str
    seed: int = 0
    seeds: int = 0
    simulated_s: float = 0.0
    real_s: float = 0.0


class Hunt:
    """Hunts of mutants with their pinned killers."""

    def __init__(self, killers: Mapping[str, Killer]) -> None:
        self._killers = killers
        self._healthy_seeds: dict[Seeds, asyncio.Task[Chase]] = {}
        self._healthy_files: dict[str, asyncio.Task[Tested]] = {}

    async def run(self, mutant: Mutant) -> MutantOutcome:
        """Run the mutant's killer against the mutant. Every failure becomes a verdict."""
        killer, began_s = self._killers.get(mutant.name), time.monotonic()
        try:
            match killer:
                case Seeds():
                    outcome = await self.run_scenario(mutant, killer)
                case PytestFile():
                    outcome = await self.tested(mutant, [killer.path])
                case None:
                    outcome = MutantOutcome(mutant, None, MutantVerdict.SURVIVED, "no killer is pinned for it")
        except Stale as stale:
            outcome = MutantOutcome(mutant, killer, MutantVerdict.STALE, str(stale))
        except ChildFailed as failed:
            outcome = MutantOutcome(mutant, killer, MutantVerdict.UNFIT, str(failed))
        except TimeoutError:
            outcome = MutantOutcome(mutant, killer, MutantVerdict.UNDECIDED, "its real time was over")
        return replace(outcome, real_s=time.monotonic() - began_s)

    async def run_scenario(self, mutant: Mutant, killer: Seeds) -> MutantOutcome:
        """Run a scenario on the mutant, seed after seed. Raises Stale, ChildFailed."""
        found = await chase_copy(mutant, killer, ChaseLimits(seeds_max=killer.budget, real_s=SCENARIO_S))
        counts: dict[str, Any] = {"seeds": found.seeds, "simulated_s": found.simulated_s}
        if not found.is_caught:
            verdict = MutantVerdict.UNDECIDED if found.is_cut_short else MutantVerdict.SURVIVED
            return MutantOutcome(mutant, killer, verdict, "", **counts)
        healthy = await self._healthy_scenario(Seeds(killer.scenario, found.seed))
        if healthy.is_caught:
            return MutantOutcome(
                mutant, killer, MutantVerdict.UNFIT, f"it fails without it too: {healthy.what}", **counts
            )
        return MutantOutcome(mutant, killer, MutantVerdict.CAUGHT, found.what, seed=found.seed, **counts)

    async def tested(self, mutant: Mutant, files: Sequence[str]) -> MutantOutcome:
        """Run test files on the mutant until the first failure. Raises Stale, ChildFailed, TimeoutError."""
        found = await test_copy(mutant, files)
        if not found.is_caught:
            return MutantOutcome(mutant, PytestFile(files[0]), MutantVerdict.SURVIVED, "")
        killer = PytestFile(found.failed.partition("::")[0])
        healthy = await self._healthy_file(killer.path)
        if healthy.is_caught:
            return MutantOutcome(
                mutant, killer, MutantVerdict.UNFIT, f"it fails without it too: {healthy.failed}: {healthy.what}"
            )
        return MutantOutcome(mutant, killer, MutantVerdict.CAUGHT, f"{found.failed.partition('::')[2]}: {found.what}")

    def _healthy_scenario(self, killer: Seeds) -> asyncio.Task[Chase]:
        """Run the last of the seeds on the unchanged source, once: the same few seeds catch most mutants."""
        if killer not in self._healthy_seeds:
            limits = ChaseLimits(first_seed=killer.budget, seeds_max=1)
            self._healthy_seeds[killer] = asyncio.create_task(chase_copy(None, killer, limits))
        return self._healthy_seeds[killer]

    def _healthy_file(self, path: str) -> asyncio.Task[Tested]:
        if path not in self._healthy_files:
            self._healthy_files[path] = asyncio.create_task(test_copy(None, [path]))
        return self._healthy_files[path]


class ChildFailed(Exception):
    """The child process on the copy ended without an outcome."""


async def chase_copy(change: Mutant | None, killer: Seeds, limits: ChaseLimits) -> Chase:
    """Run `chase` on a copy of this package with the change in it, if any. Raises Stale or ChildFailed."""
    arguments = (killer.scenario, json.dumps(asdict(limits)))
    return Chase(**await _in_copy(change, "cordwood.chaos.mutants.chase", arguments, None))


async def test_copy(change: Mutant | None, files: Sequence[str]) -> Tested:
    """Run test files on a copy of this package with the change, if any. Raises Stale, ChildFailed, TimeoutError.

    File names are relative to the root of the source tree.
    """
    arguments = (str(ROOT), *(str(ROOT / file) for file in files))
    return Tested(**await _in_copy(change, "cordwood.chaos.mutants.tested", arguments, TESTS_S))


async def _in_copy(
    change: Mutant | None, module: str, arguments: Sequence[str], timeout_s: float | None
) -> dict[str, Any]:
    """Run a module on a copy of this package. Return its outcome. Raises Stale, ChildFailed, TimeoutError."""
    with tempfile.TemporaryDirectory(prefix="cordwood-mutant-") as place:
        copy = copied(Path(place), change)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            cwd=place,
            env=_environment(place),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await asyncio.wait_for(child.communicate(), timeout_s)
        except (asyncio.CancelledError, TimeoutError):
            child.kill()
            await child.wait()
            raise
        if child.returncode != 0:
            said = errors.decode().replace(place, "").replace(f"{ROOT}/", "").strip().splitlines()
            raise ChildFailed(" / ".join(said[-STDERR_LINES:]))
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        assert Path(found["package"]).samefile(copy), f"the code came from {found['package']}, and not from the copy"
        return found


def _environment(place: str) -> dict[str, str]:
    """Return the child's environment: a fixed hash seed, so that the seed alone decides, and no CORDWOOD_ variable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    return {**kept, "PYTHONPATH": place, "PYTHONHASHSEED": "0"}


def copied(place: Path, change: Mutant | None) -> Path:
    """Copy this package below `place`, with the change in it. Return the copy's path. Raises Stale."""
    source, copy = Path(cordwood.__path__[0]), place / "cordwood"
    # The copy includes compiled files: only the changed file is compiled again.
    shutil.copytree(source, copy, ignore=LEFT_OUT, copy_function=_link)
    if change is not None:
        changed = copy / change.file
        content = change.applied_to(changed.read_text())
        # The link, not the file: the source stays as it is.
        changed.unlink()
        changed.write_text(content)
    return copy


def _link(source: str, target: str) -> None:
    """Make a hard link, which takes a twentieth of a copy's time; a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
