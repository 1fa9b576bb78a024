"""`cordwood chaos mutants`: hunts them all, and tells the score."""

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from cordwood.chaos.mutants import report
from cordwood.chaos.mutants.catalogue import ALL, BY_NAME
from cordwood.chaos.mutants.hunt import Outcome, hunt
from cordwood.chaos.mutants.mutant import Mutant, Story


def mutants(
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Hunt this mutant; may be given more than once.")
    ] = None,
    hours: Annotated[
        float, typer.Option(min=0.0, help="Simulated hours after which a mutant counts as a survivor.")
    ] = 10.0,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants hunted at a time.")] = os.cpu_count() or 1,
    story: Annotated[
        list[Story] | None, typer.Option(help="Look here alone, instead of where a mutant is expected to show.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as an object in the last line.")] = False,
) -> None:
    """Take one rule, check or sync at a time out of a copy of the source, and see whether the simulator notices.

    Exit code 1 where a mutant survives that does harm.
    """
    outcomes = asyncio.run(_hunt_all(_chosen(only), hours, jobs, story or ()))
    typer.echo(json.dumps(report.verdict(outcomes)) if as_json else report.summary(outcomes))
    raise typer.Exit(0 if report.is_well(outcomes) else 1)


def _chosen(names: Sequence[str] | None) -> Sequence[Mutant]:
    if unknown := set(names or ()) - BY_NAME.keys():
        raise typer.BadParameter(f"there is no mutant {', '.join(sorted(unknown))}.", param_hint="--only")
    return [BY_NAME[name] for name in names] if names else ALL


async def _hunt_all(wanted: Sequence[Mutant], hours: float, jobs: int, stories: Sequence[Story]) -> list[Outcome]:
    turn = asyncio.Semaphore(jobs)

    async def hunted(mutant: Mutant) -> Outcome:
        async with turn:
            outcome = await hunt(mutant, hours, stories)
        typer.echo(report.line(outcome))
        return outcome

    return list(await asyncio.gather(*map(hunted, wanted)))
