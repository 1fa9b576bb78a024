"""The commands `cordwood chaos sim` and `cordwood chaos replay`: run seeds, or replay one with its event log."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.commit import commit
from cordwood.chaos.recorded import SIM
from cordwood.chaos.report.page import page
from cordwood.chaos.report.place import writable
from cordwood.chaos.results import begun, ended
from cordwood.chaos.sim import run_summary
from cordwood.chaos.sim.plan import Plan, plan_of
from cordwood.chaos.sim.run import SimulatedRun, run_plan, run_seed
from cordwood.chaos.sim.run_summary import RunTotals
from cordwood.chaos.sim.schedule import ScheduledFault
from cordwood.chaos.sim.seeds import run_seeds
from cordwood.chaos.sim.shrink import shrunk
from cordwood.cluster.cli.exits import ExitCode, Failure

TROUBLE_S = 30.0
PROGRESS_S = 5.0
MINUTE_S = 60.0

Seed = Annotated[
    int | None, typer.Option(min=0, help="The seed of one simulated cluster, which determines everything that happens.")
]
Seconds = Annotated[float, typer.Option(min=1, help="How long faults are injected into a cluster, in simulated time.")]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The file of the last seed's report. A failed seed always has a report."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the verdict as one line of JSON at the end.")]
Recorded = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Record the verdict as a result file, at a commit.")
]


def sim(
    seed: Seed = None,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="The range of seeds to run.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="The time after which no further seed is started.")
    ] = None,
    seconds: Seconds = TROUBLE_S,
    jobs: Annotated[int, typer.Option(min=1, help="Number of seeds that run in parallel.")] = 1,
    shrink: Annotated[bool, typer.Option(help="Reduce the faults of a failing seed to those that it needs.")] = True,
    report: Report = None,
    as_json: AsJson = False,
    recorded: Recorded = None,
) -> None:
    """Run simulated clusters with faults of every kind, and check that no promise is broken.

    The default is to start at seed 1 and run for the given minutes. Stops at the first failed seed, and exits with 1.
    """
    if seed is not None and seeds is not None:
        raise Failure("give --seed or --seeds, not both.", ExitCode.USAGE)
    chosen = [seed] if seed is not None else _chosen(seeds, minutes)
    asked = {"seeds": seed or seeds or "1..", **({} if minutes is None else {"minutes": minutes}), "seconds": seconds}
    record = begun(recorded, SIM, asked)
    place, tally = _place(report), RunTotals()
    last = _add_up(run_seeds(_until_over(chosen, minutes), seconds, jobs), tally)
    if tally.found or place is not None:
        run = run_seed(last, seconds)
        if run.trace_hash != tally.hashes[-1]:
            raise Failure(f"seed {last} gives another run the second time; the first one had {tally.found}.")
        if tally.found:
            _tell_failure(run)
        _write_report(run, tally, place, _again(run.plan))
        if shrink and tally.found:
            _tell_needed(run)
    ended(record, run_summary.summary(tally, last))
    _conclude(tally, last, as_json)


def replay(
    seed: Annotated[int, typer.Option(min=0, help="The seed that failed.")],
    seconds: Seconds = TROUBLE_S,
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Inject only these faults of the seed, by number.")
    ] = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Replay one seed and print its events: every fault, its effect, and the anomalies found."""
    plan, place = plan_of(seed, seconds), _place(report)
    began_s = time.monotonic()
    run = run_plan(plan, _only(plan, faults))
    tally = RunTotals.of(run)
    tally.wall_s = time.monotonic() - began_s
    typer.echo(run_summary.described(plan))
    for line in run.events:
        typer.echo(line)
    _tell_findings(run)
    _write_report(run, tally, place, _again(plan, faults))
    _conclude(tally, seed, as_json)


def _chosen(seeds: str | None, minutes: float | None) -> Sequence[int]:
    if seeds is None:
        if minutes is None:
            raise Failure("say which: --seed N, --seeds A..B or --minutes M.", ExitCode.USAGE)
        return range(1, 1 << 62)
    first, dots, last = seeds.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise Failure(f"--seeds is {seeds!r}: write it as A..B, such as 1..100.", ExitCode.USAGE)
    return range(int(first), int(last) + 1)


def _until_over(seeds: Sequence[int], minutes: float | None) -> Iterator[int]:
    """Yield seeds, at least one, until the time is over."""
    end_s = math.inf if minutes is None else time.monotonic() + minutes * MINUTE_S
    for seed in seeds:
        yield seed
        if time.monotonic() > end_s:
            return


def _add_up(runs: Iterable[tuple[int, RunTotals]], tally: RunTotals) -> int:
    """Add up runs until one fails, and print progress. Return the last seed."""
    last, began_s, print_s = -1, time.monotonic(), PROGRESS_S
    for seed, totals in runs:
        last = seed
        tally.add(totals)
        tally.wall_s = time.monotonic() - began_s
        if tally.found:
            break
        if tally.wall_s > print_s:
            print_s = tally.wall_s + PROGRESS_S
            done = f"{tally.seeds} seeds, {tally.simulated_s:.0f} simulated seconds, {tally.speed:.0f} a second"
            typer.echo(done, err=True)
    return last


def _only(plan: Plan, numbers: str | None) -> Sequence[ScheduledFault]:
    """Return the faults of the plan, or those with these numbers, as `sim` prints them for a failure."""
    if numbers is None:
        return plan.faults
    try:
        return [plan.faults[int(number)] for number in numbers.split(",") if number.strip()]
    except (ValueError, IndexError):
        count = len(plan.faults)
        raise Failure(f"--faults is {numbers!r}: the seed has faults 0 to {count - 1}.", ExitCode.USAGE) from None


def _tell_failure(run: SimulatedRun) -> None:
    """Print the replay command first, because later output may scroll it away."""
    typer.echo(f"seed {run.plan.seed} fails at commit {commit()}: {_again(run.plan)}")
    _tell_findings(run)


def _tell_needed(run: SimulatedRun) -> None:
    """Shrink the fault list of a failed run, and print the faults that the failure needs."""
    plan, kinds = run.plan, {finding.kind for finding in run.findings}

    def fails(faults: Sequence[ScheduledFault]) -> bool:
        return any(finding.kind in kinds for finding in run_plan(plan, faults).findings)

    typer.echo("looking for the faults that it takes …", err=True)
    needed = shrunk(plan.faults, fails)
    numbers = ",".join(str(plan.faults.index(fault)) for fault in needed)
    typer.echo(f"it takes {len(needed)} of {len(plan.faults)} faults: {_again(plan, numbers)}")
    for fault in needed:
        typer.echo(f"  {fault.at_s:9.3f} {fault.kind.value} at {fault.aim.value} for {fault.lasts_s:.3f} s")


def _again(plan: Plan, numbers: str | None = None) -> str:
    """Return the command that replays a run, with only some of its faults if `numbers` is given."""
    only = "" if numbers is None else f' --faults "{numbers}"'
    return f"cordwood chaos replay --seed {plan.seed} --seconds {plan.seconds:g}{only}"


def _tell_findings(run: SimulatedRun) -> None:
    for finding in run.findings:
        typer.echo(f"  {finding.kind}: {finding.sentence}")
        for operation in finding.operations:
            typer.echo(f"    {operation}")


def _place(report: Path | None) -> Path | None:
    return None if report is None else writable(report)


def _write_report(run: SimulatedRun, tally: RunTotals, place: Path | None, again: str) -> None:
    """Write the report of a failed run, or of any run if `place` is given."""
    if place is None and not run.is_sound:
        place = writable(Path(f"cordwood-chaos-sim-{run.plan.seed}.html"))
    if place is not None:
        place.write_text(page(run_summary.run_report(run, run_summary.sentence(tally), again)), encoding="utf-8")
        typer.echo(f"report: {place}", err=True)


def _conclude(tally: RunTotals, last_seed: int, as_json: bool) -> None:
    """Print the verdict as one line, and as JSON on request. Exits with 1 if there are findings."""
    typer.echo(run_summary.sentence(tally))
    if as_json:
        typer.echo(json.dumps(run_summary.summary(tally, last_seed)))
    if tally.found:
        raise typer.Exit(ExitCode.FAILED)
