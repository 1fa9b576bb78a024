"""`cordwood chaos mutants`: runs every mutant's killer against the mutant, and prints the mutation score."""

import asyncio
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.mutants import report
from cordwood.chaos.mutants.catalogue import ALL, BY_NAME
from cordwood.chaos.mutants.hunt import Hunt, MutantOutcome
from cordwood.chaos.mutants.killers import ROOT, PytestFile, pin, pinned
from cordwood.chaos.mutants.mutant import Mutant, Stale
from cordwood.chaos.mutants.search import search
from cordwood.chaos.results import ResultFile

MINUTE_S = 60.0
GIT_S = 10


def mutants(
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this mutant; may be repeated.")
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT", help="Run the mutants whose file, or whose killer's file, differs from that commit."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="The time after which no further mutant is started.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of mutants that run in parallel.")] = os.cpu_count() or 1,
    recorded: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write a result file, or continue one of the same commit."),
    ] = None,
    is_pinning: Annotated[
        bool,
        typer.Option(
            "--pin", help="Search a killer for mutants that have none or are not caught by it, and record it."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the verdict as a JSON object in the last line.")
    ] = False,
) -> None:
    """Remove one rule, check or sync at a time from a copy of the source, and check that the mutant's killer fails.

    Exits with 1 if a mutant survives, does not fit the source, or gives no result.
    """
    wanted = _chosen(only, changed)
    if is_pinning:
        raise typer.Exit(0 if asyncio.run(_pin_all(wanted)) else 1)
    kept = None if recorded is None else ResultFile(recorded, report.KIND, {"mutants": len(wanted)})
    outcomes = asyncio.run(_hunt_all(wanted, jobs, kept, math.inf if minutes is None else minutes * MINUTE_S))
    if kept is not None and len(outcomes) == len(wanted):
        kept.end()
    typer.echo(report.summary(outcomes))
    if left := len(wanted) - len(outcomes):
        typer.echo(f"{left} mutants were not run: the time was over.")
    if as_json:
        typer.echo(json.dumps({**report.verdict(outcomes), "not_run": left}))
    raise typer.Exit(0 if report.is_well(outcomes) else 1)


def _chosen(names: Sequence[str] | None, changed: str | None) -> Sequence[Mutant]:
    if unknown := set(names or ()) - BY_NAME.keys():
        raise typer.BadParameter(f"there is no mutant {', '.join(sorted(unknown))}.", param_hint="--only")
    chosen = [BY_NAME[name] for name in names] if names else ALL
    return chosen if changed is None else list(_differing(chosen, changed))


def _differing(mutants: Sequence[Mutant], commit: str) -> Iterator[Mutant]:
    """Yield the mutants whose file, or whose killer's file, differs from that commit."""
    files, killers = _changed_files(commit), pinned()
    for mutant in mutants:
        killer = killers.get(mutant.name)
        if mutant.file in files or (isinstance(killer, PytestFile) and killer.path in files):
            yield mutant


def _changed_files(commit: str) -> set[str]:
    command = ["git", "diff", "--name-only", "--relative", commit]
    try:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GIT_S, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise typer.BadParameter(f"{error.stderr.strip()}", param_hint="--changed") from None
    return set(said.splitlines())


async def _hunt_all(wanted: Sequence[Mutant], jobs: int, kept: ResultFile | None, real_s: float) -> list[MutantOutcome]:
    """Return the outcomes of all mutants begun in time, in their order: those of the record, and new ones."""
    known = {} if kept is None else report.outcomes(kept.rows)
    hunt, turn, end_s = Hunt(pinned()), asyncio.Semaphore(jobs), time.monotonic() + real_s

    async def hunted(mutant: Mutant) -> MutantOutcome | None:
        if mutant.name in known:
            return known[mutant.name]
        async with turn:
            if time.monotonic() >= end_s:
                return None
            outcome = await hunt.run(mutant)
        typer.echo(report.line(outcome))
        if kept is not None:
            kept.add(report.row(outcome))
        return outcome

    return [outcome for outcome in await asyncio.gather(*map(hunted, wanted)) if outcome is not None]


async def _pin_all(wanted: Sequence[Mutant]) -> bool:
    """Return whether each of the mutants has a killer now."""
    killers, is_well = pinned(), True
    hunt = Hunt(killers)
    for mutant in wanted:
        if mutant.name in killers and report.is_well([await hunt.run(mutant)]):
            continue
        try:
            found = await search(hunt, mutant)
        except Stale as stale:
            typer.echo(str(stale))
            is_well = False
            continue
        typer.echo(f"{mutant.name}: nothing notices it" if found is None else report.line(found[1]))
        is_well &= found is not None
        if found is not None:
            killers[mutant.name] = found[0]
            pin({name: killer for name, killer in killers.items() if name in BY_NAME})
    return is_well
