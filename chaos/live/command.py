"""`cordwood chaos run`: fault injection on a real cluster under load, and a verdict that names every broken promise."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.live import address_target, compose_target, local_target, run_summary
from cordwood.chaos.live.campaign import WENT_WRONG, Campaign
from cordwood.chaos.live.load_clients import ClusterLoad
from cordwood.chaos.live.network import NetworkUnavailable
from cordwood.chaos.live.options import workplace
from cordwood.chaos.live.power_cut import CannotMount
from cordwood.chaos.live.screen import RunProgress, screen
from cordwood.chaos.live.target import CannotHarm, Target, chosen
from cordwood.chaos.live.verdict import judge
from cordwood.chaos.recorded import RUN
from cordwood.chaos.report.page import page
from cordwood.chaos.report.place import writable
from cordwood.chaos.results import ResultFile, begun, ended
from cordwood.cluster.cli.exits import ExitCode, Failure

LOCAL, COMPOSE, NONE, ALL = "local", "compose", "none", "all"
SEED_MAX = 1_000_000
ANOMALIES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run."""

    target: str
    project: str
    faults: Sequence[str]
    left_out: Mapping[str, str]
    """Why each other fault is not possible on this target, where all faults were requested."""
    minutes: float
    load: ClusterLoad
    report: Path
    as_json: bool
    record: ResultFile | None = None


def run(
    faults: Annotated[str, typer.Option(help="kill,pause,partition,power-cut,…; or all, or none.")] = ALL,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the clients run under faults.")] = 5.0,
    target: Annotated[str, typer.Option(metavar="local|compose|HOST:PORT", help="The cluster to test.")] = LOCAL,
    project: Annotated[str, typer.Option(help="The compose project; the default is the one of this directory.")] = "",
    seed: Annotated[int | None, typer.Option(help="The seed of the faults and their times; random by default.")] = None,
    per_second: Annotated[int, typer.Option(min=1, help="Records that each of four producers sends.")] = 100,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="The file of the report.")] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep all data in this new directory.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as one line of JSON at the end.")] = False,
    recorded: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record the verdict as a result file, at a commit.")
    ] = None,
) -> None:
    """Inject faults into a cluster while clients write and read, undo them, and check that no promise was broken.

    `local` starts three brokers of its own; `compose` uses the running deployment of this directory; any other
    cluster is loaded and checked without faults. Exits with 1 if a promise was broken.
    """
    number = random.SystemRandom().randrange(SEED_MAX) if seed is None else seed
    try:
        wanted, left_out = _faults(faults, target)
        if target == LOCAL:
            local_target.enter(wanted)
        asked = RunOptions(
            target=target,
            project=project or Path.cwd().name,
            faults=wanted,
            left_out=left_out,
            minutes=minutes,
            load=ClusterLoad(f"cordwood-chaos-{number}-{int(time.time())}", number, per_second=per_second),
            report=writable(report or Path(f"cordwood-chaos-{number}.html")),
            as_json=as_json,
            record=begun(recorded, RUN, {"target": target, "minutes": minutes, "seed": number, "faults": faults}),
        )
        with workplace(keep) as place:
            is_whole = _carry_out(asked, place)
    except (CannotHarm, NetworkUnavailable, CannotMount) as reason:
        raise Failure(f"{reason}.", ExitCode.USAGE) from None
    except WENT_WRONG as failure:
        raise Failure(f"the brokers did not start: {failure}") from None
    if not is_whole:
        raise typer.Exit(ExitCode.FAILED)


def _faults(words: str, target: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the faults to inject, and why each other fault is left out. Raises CannotHarm."""
    if target == LOCAL:
        reasons = local_target.reasons()
    else:
        reasons = compose_target.reasons() if target == COMPOSE else address_target.reasons()
    if words == ALL:
        usual = compose_target.DEFAULT_FAULTS if target == COMPOSE else None
        return chosen(usual, reasons), reasons
    wanted = [] if words == NONE else [word.strip() for word in words.split(",") if word.strip()]
    return chosen(wanted, reasons), {}


@contextmanager
def _opened(asked: RunOptions, place: Path) -> Iterator[Target]:
    if asked.target == LOCAL:
        with local_target.opened(place, asked.faults, asked.minutes) as target:
            target.cluster.start()
            yield target
    elif asked.target == COMPOSE:
        with compose_target.opened(asked.project, asked.faults) as target:
            yield target
    else:
        yield address_target.found(asked.target)


def _carry_out(asked: RunOptions, place: Path) -> bool:
    """Run the campaign, write the report and print the verdict. Return False where a promise was broken."""
    progress = RunProgress()
    for name, reason in asked.left_out.items():
        progress.tell(f"{name} is left out: {reason}")
    with _opened(asked, place) as target:
        campaign = Campaign(target, asked.load, place, progress.tell)
        try:
            with screen(campaign, progress, asked.minutes):
                campaign.run(asked.minutes)
                lasted_s = campaign.now_s
                progress.tell("all faults are over: reading all records and comparing all replicas")
                verdict = judge(campaign)
        finally:
            campaign.clients.kill()
    asked.report.write_text(page(run_summary.run_report(campaign, verdict, lasted_s, asked.left_out)), encoding="utf-8")
    for anomaly in verdict.anomalies[:ANOMALIES_SHOWN]:
        typer.echo(f"{anomaly.kind}: {anomaly.sentence}")
    typer.echo(run_summary.sentence(campaign, verdict, lasted_s))
    typer.echo(f"report: {asked.report}", err=True)
    summary = run_summary.summary(campaign, verdict, lasted_s)
    ended(asked.record, summary)
    if asked.as_json:
        typer.echo(json.dumps(summary))
    return not verdict.anomalies
