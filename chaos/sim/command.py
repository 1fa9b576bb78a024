"""The commands `cordwood chaos sim` and `cordwood chaos replay`: run seeds, or replay one with its event log."""

import json
import time
from collections.abc import Iterator, Sequence
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
from cordwood.chaos.sim.run import SimulatedRun, run_plan
from cordwood.chaos.sim.run_summary import RunTotals
from cordwood.chaos.sim.schedule import ScheduledFault
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
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="The range of seeds to run, one after the other.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="The time after which no further seed is started.")
    ] = None,
    seconds: Seconds = TROUBLE_S,
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
    place, tally, run = _place(report), RunTotals(), None
    for run in _in_time(chosen, minutes, seconds, tally):
        if not run.is_sound:
            _tell_failure(run)
            break
    assert run is not None, "at least one seed is run"
    _write_report(run, tally, place, _again(run.plan))
    if shrink and not run.is_sound:
        _tell_needed(run)
    ended(record, run_summary.summary(tally, run.plan.seed))
    _conclude(tally, run, as_json)


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
    plan, place, tally = plan_of(seed, seconds), _place(report), RunTotals()
    run = _timed(plan, _only(plan, faults), tally)
    typer.echo(run_summary.described(plan))
    for line in run.events:
        typer.echo(line)
    _tell_findings(run)
    _write_report(run, tally, place, _again(plan, faults))
    _conclude(tally, run, as_json)


def _chosen(seeds: str | None, minutes: float | None) -> Sequence[int]:
    if seeds is None:
        if minutes is None:
            raise Failure("say which: --seed N, --seeds A..B or --minutes M.", ExitCode.USAGE)
        return range(1, 1 << 62)
    first, dots, last = seeds.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise Failure(f"--seeds is {seeds!r}: write it as A..B, such as 1..100.", ExitCode.USAGE)
    return range(int(first), int(last) + 1)


def _in_time(seeds: Sequence[int], minutes: float | None, seconds: float, tally: RunTotals) -> Iterator[SimulatedRun]:
    """Yield runs, at least one, and print progress at intervals."""
    printed_s = 0.0
    for seed in seeds:
        plan = plan_of(seed, seconds)
        yield _timed(plan, plan.faults, tally)
        if tally.wall_s - printed_s > PROGRESS_S:
            printed_s = tally.wall_s
            done = f"{tally.seeds} seeds, {tally.simulated_s:.0f} simulated seconds, {tally.speed:.0f} a second"
            typer.echo(done, err=True)
        if minutes is not None and tally.wall_s > minutes * MINUTE_S:
            return


def _timed(plan: Plan, faults: Sequence[ScheduledFault], tally: RunTotals) -> SimulatedRun:
    """Run a plan and add the run to the tally."""
    began_s = time.monotonic()
    run = run_plan(plan, faults)
    tally.add(run, time.monotonic() - began_s)
    return run


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


def _conclude(tally: RunTotals, last: SimulatedRun, as_json: bool) -> None:
    """Print the verdict as one line, and as JSON on request. Exits with 1 if there are findings."""
    typer.echo(run_summary.sentence(tally))
    if as_json:
        typer.echo(json.dumps(run_summary.summary(tally, last.plan.seed)))
    if tally.found:
        raise typer.Exit(ExitCode.FAILED)
