"""`cordwood chaos sim` and `cordwood chaos replay`: simulated clusters by the seed, and one of them told in full."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Annotated, Any

import typer

from cordwood.chaos.commit import commit
from cordwood.chaos.sim.plan import Plan, plan_of
from cordwood.chaos.sim.run import Run, run_plan, run_seed
from cordwood.chaos.sim.schedule import Fault
from cordwood.chaos.sim.shrink import shrunk
from cordwood.cluster.cli.exits import ExitCode, Failure

TROUBLE_S = 30.0
PROGRESS_S = 5.0
MINUTE_S = 60.0

Seed = Annotated[int | None, typer.Option(min=0, help="One simulated cluster: all that happens follows from it.")]
Seconds = Annotated[float, typer.Option(min=1, help="How long a cluster is in trouble, in its own time.")]
AsJson = Annotated[bool, typer.Option("--json", help="End with the verdict as one line of JSON.")]


def sim(
    seed: Seed = None,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="All of these, one after the other.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Begin no further seed after so long.")] = None,
    seconds: Seconds = TROUBLE_S,
    shrink: Annotated[bool, typer.Option(help="Look for the faults that a failing seed needs.")] = True,
    as_json: AsJson = False,
) -> None:
    """Run whole clusters in a simulated world that goes wrong in every way, and check that no promise is broken.

    Without seeds it begins at 1, for the minutes given. Stops at the first seed that fails, and exits with 1.
    """
    if seed is not None and seeds is not None:
        raise Failure("give --seed or --seeds, not both.", ExitCode.USAGE)
    chosen = [seed] if seed is not None else _chosen(seeds, minutes)
    runs: list[Run] = []
    for run in _in_time(chosen, minutes, seconds):
        runs.append(run)
        if not run.is_sound:
            _tell_failure(run, seconds, shrink)
            break
    if not runs:
        raise Failure("no seed was run: give more --minutes.", ExitCode.USAGE)
    _conclude(runs, as_json)


def replay(
    seed: Annotated[int, typer.Option(min=0, help="The seed that failed.")],
    seconds: Seconds = TROUBLE_S,
    faults: Annotated[str | None, typer.Option(metavar="N,N,…", help="Only these of its faults, by number.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run one seed again and tell its story: every fault, what it did, and what was found."""
    plan = plan_of(seed, seconds)
    run = run_plan(plan, _only(plan, faults))
    typer.echo(_described(plan))
    for line in run.story:
        typer.echo(line)
    _tell_findings(run)
    _conclude([run], as_json)


def _chosen(seeds: str | None, minutes: float | None) -> Sequence[int]:
    if seeds is None:
        if minutes is None:
            raise Failure("say which: --seed N, --seeds A..B or --minutes M.", ExitCode.USAGE)
        return range(1, 1 << 62)
    first, dots, last = seeds.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise Failure(f"--seeds is {seeds!r}: write it as A..B, such as 1..100.", ExitCode.USAGE)
    return range(int(first), int(last) + 1)


def _in_time(seeds: Sequence[int], minutes: float | None, seconds: float) -> Iterator[Run]:
    """Runs, with a line of progress now and then."""
    began_s = told_s = time.monotonic()
    simulated_s = 0.0
    for number, seed in enumerate(seeds, 1):
        run = run_seed(seed, seconds)
        yield run
        simulated_s += run.simulated_s
        now_s = time.monotonic()
        if now_s - told_s > PROGRESS_S:
            told_s = now_s
            speed = simulated_s / (now_s - began_s)
            typer.echo(f"{number} seeds, {simulated_s:.0f} simulated seconds, {speed:.0f} a second", err=True)
        if minutes is not None and now_s - began_s > minutes * MINUTE_S:
            return


def _only(plan: Plan, numbers: str | None) -> Sequence[Fault]:
    """The plan's faults, or some of them by their number in the story that `sim` tells of a failure."""
    if numbers is None:
        return plan.faults
    try:
        return [plan.faults[int(number)] for number in numbers.split(",") if number.strip()]
    except (ValueError, IndexError):
        count = len(plan.faults)
        raise Failure(f"--faults is {numbers!r}: the seed has faults 0 to {count - 1}.", ExitCode.USAGE) from None


def _tell_failure(run: Run, seconds: float, shrink: bool) -> None:
    """How to see it again first: whatever comes behind may scroll away."""
    again = f"cordwood chaos replay --seed {run.seed} --seconds {seconds:g}"
    typer.echo(f"seed {run.seed} fails at commit {commit()}: {again}")
    _tell_findings(run)
    if shrink:
        plan = plan_of(run.seed, seconds)
        kinds = {finding.kind for finding in run.findings}

        def fails(faults: Sequence[Fault]) -> bool:
            return any(finding.kind in kinds for finding in run_plan(plan, faults).findings)

        typer.echo("looking for the faults that it takes …", err=True)
        needed = shrunk(plan.faults, fails)
        numbers = ",".join(str(plan.faults.index(fault)) for fault in needed)
        typer.echo(f'it takes {len(needed)} of {len(plan.faults)} faults: {again} --faults "{numbers}"')
        for fault in needed:
            typer.echo(f"  {fault.at_s:9.3f} {fault.kind.value} at {fault.aim.value} for {fault.lasts_s:.3f} s")


def _tell_findings(run: Run) -> None:
    for finding in run.findings:
        typer.echo(f"  {finding.kind}: {finding.sentence}")
        for operation in finding.operations:
            typer.echo(f"    {operation}")


def _described(plan: Plan) -> str:
    """The world of a seed, without its faults."""
    return json.dumps(asdict(replace(plan, faults=())), default=str)


def _conclude(runs: Sequence[Run], as_json: bool) -> None:
    """The verdict, as one line, and as JSON if wanted. Exits with 1 where anything was found."""
    verdict = _verdict(runs)
    count = len(verdict["anomalies"])
    found = "no anomaly" if not count else f"{count} anomalies: {', '.join(verdict['kinds'])}"
    typer.echo(
        f"{found} in {len(runs)} seeds and {verdict['simulated_s']} simulated seconds with "
        f"{sum(verdict['faults'].values())} faults; {verdict['acknowledged']} records acknowledged, "
        f"{verdict['read']} read; trace {verdict['trace_hash']}"
    )
    if as_json:
        typer.echo(json.dumps(verdict))
    if count:
        raise typer.Exit(ExitCode.FAILED)


def _verdict(runs: Sequence[Run]) -> dict[str, Any]:
    findings = [(run.seed, finding) for run in runs for finding in run.findings]
    faults: Counter[str] = Counter()
    for run in runs:
        faults.update(run.faults)
    return {
        "seed": runs[-1].seed,
        "seeds": len(runs),
        "trace_hash": _hash_of(runs),
        "anomalies": [{"seed": seed, **asdict(finding)} for seed, finding in findings],
        "kinds": dict(Counter(finding.kind for _, finding in findings)),
        "acknowledged": sum(run.acknowledged for run in runs),
        "read": sum(run.read for run in runs),
        "faults": dict(sorted(faults.items())),
        "simulated_s": round(sum(run.simulated_s for run in runs), 3),
        "commit": commit(),
    }


def _hash_of(runs: Sequence[Run]) -> str:
    """Of one run its own; of several one over all of them."""
    if len(runs) == 1:
        return runs[0].trace_hash
    return blake2b("".join(run.trace_hash for run in runs).encode(), digest_size=8).hexdigest()
