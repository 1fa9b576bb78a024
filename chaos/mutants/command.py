"""`cordwood chaos mutants`: hunts them all, and tells the score."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.commit import commit
from cordwood.chaos.mutants import record, report
from cordwood.chaos.mutants.catalogue import ALL, BY_NAME
from cordwood.chaos.mutants.chase import Limits
from cordwood.chaos.mutants.hunt import Hunt, Outcome, Verdict
from cordwood.chaos.mutants.mutant import Mutant, Story
from cordwood.chaos.mutants.page import page

MINUTE_S = 60.0


def mutants(
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Hunt this mutant; may be given more than once.")
    ] = None,
    hours: Annotated[
        float, typer.Option(min=0.0, help="Simulated hours after which a mutant counts as a survivor.")
    ] = 10.0,
    real_minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, help="Real minutes for each of its stories, if that is over before.")
    ] = 30.0,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants hunted at a time.")] = os.cpu_count() or 1,
    story: Annotated[
        list[Story] | None, typer.Option(help="Look here alone, instead of where a mutant is expected to show.")
    ] = None,
    recorded: Annotated[
        Path | None,
        typer.Option("--record", help="Note every outcome here, and do not hunt again whom it has as caught."),
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Write all that is known as a Markdown page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as an object in the last line.")] = False,
) -> None:
    """Take one rule, check or sync at a time out of a copy of the source, and see whether the simulator notices.

    Exit code 1 where a mutant survives that does harm.
    """
    wanted = _chosen(only)
    known = {} if recorded is None else record.read(recorded)
    done = [known[mutant.name] for mutant in wanted if _is_done(known.get(mutant.name))]
    left = [mutant for mutant in wanted if not _is_done(known.get(mutant.name))]
    hunt = Hunt(Limits(hours, real_minutes * MINUTE_S), story or ())
    outcomes = done + asyncio.run(_hunt_all(left, hunt, jobs, recorded))
    outcomes.sort(key=lambda outcome: wanted.index(outcome.mutant))
    if table is not None:
        table.write_text(page(outcomes, commit()))
    typer.echo(json.dumps(report.verdict(outcomes)) if as_json else report.summary(outcomes))
    raise typer.Exit(0 if report.is_well(outcomes) else 1)


def _chosen(names: Sequence[str] | None) -> Sequence[Mutant]:
    if unknown := set(names or ()) - BY_NAME.keys():
        raise typer.BadParameter(f"there is no mutant {', '.join(sorted(unknown))}.", param_hint="--only")
    return [BY_NAME[name] for name in names] if names else ALL


def _is_done(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.verdict is Verdict.CAUGHT


async def _hunt_all(wanted: Sequence[Mutant], hunt: Hunt, jobs: int, recorded: Path | None) -> list[Outcome]:
    turn, source = asyncio.Semaphore(jobs), commit()

    async def hunted(mutant: Mutant) -> Outcome:
        async with turn:
            outcome = await hunt.run(mutant)
        typer.echo(report.line(outcome))
        if recorded is not None:
            record.append(recorded, outcome, source)
        return outcome

    return list(await asyncio.gather(*map(hunted, wanted)))
