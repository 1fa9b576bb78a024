"""Kills in the middle of replacements, under load: `python -m cordwood.chaos.live.replacements`.

Four brokers with two log directories each, three of them voters. In turn, a broker gets empty disks, a broker loses one
of its two directories, and a voter is replaced by the broker that has no vote. Each time a broker is killed in the
middle, and the procedure is carried on as the operators' pages say.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.live import run_summary
from cordwood.chaos.live.campaign import Campaign
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.fault import AT_ONCE_S, NOTHING_TWICE, Form, RoundOptions
from cordwood.chaos.live.faults.replacements import DirectoryReplacement, DiskReplacement, VoterReplacement
from cordwood.chaos.live.load_clients import LoadOnCluster
from cordwood.chaos.live.options import Keep, Seed, workplace
from cordwood.chaos.live.options import Rounds as RoundCount
from cordwood.chaos.live.plan import TargetRole
from cordwood.chaos.live.replica_logs import TOPICS
from cordwood.chaos.live.rounds import Rounds
from cordwood.chaos.live.target import FaultTarget
from cordwood.chaos.live.verdict import judge
from cordwood.chaos.program import run_program
from cordwood.chaos.recorded import REPLACEMENTS
from cordwood.chaos.results import begun, ended

BROKERS, VOTERS = 4, 3
TRANSACTIONAL = 2
OPTIONS = RoundOptions(limits=(NOTHING_TWICE,), hold_s=AT_ONCE_S)

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    rounds: RoundCount = 30,
    seed: Seed = 1,
    per_second: Annotated[int, typer.Option(min=1, help="Records that each of four producers sends.")] = 40,
    keep: Keep = None,
    recorded: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record the verdict as a result file, at a commit.")
    ] = None,
) -> None:
    """Interrupt replacements, carry them on, and check everything. Exits with 1 if a promise was broken."""
    record = begun(recorded, REPLACEMENTS, {"rounds": rounds, "seed": seed})
    load = LoadOnCluster(f"replaced-{seed}", seed, per_second=per_second, transactional=TRANSACTIONAL)
    with workplace(keep) as place, _cluster(place) as target:
        summary = _run(place, target, load, rounds)
    ended(record, summary)
    typer.echo(json.dumps(summary))
    if summary["anomalies"]:
        raise typer.Exit(1)


def _run(place: Path, target: FaultTarget, load: LoadOnCluster, rounds: int) -> dict[str, object]:
    cluster = target.cluster
    assert isinstance(cluster, LocalCluster)
    campaign = Campaign(target, load, place, _say, OPTIONS.limits)
    faults = (DiskReplacement(cluster), DirectoryReplacement(cluster), VoterReplacement(cluster))
    forms = {fault.name: Form(fault, TargetRole.ANYONE) for fault in faults}
    injected = Rounds(campaign, OPTIONS, forms, place)
    cluster.start()
    cluster.find_voters_by_address()
    try:
        campaign.run_through(lambda: injected.inject(rounds))
        lasted_s, verdict = campaign.now_s, judge(campaign)
    finally:
        campaign.clients.kill()
    injected.measure(verdict)
    verdict.anomalies.extend(campaign.figures.exceeded(campaign.limits))
    for anomaly in verdict.anomalies:
        _say(f"{anomaly.kind}: {anomaly.sentence}")
    _say(run_summary.sentence(campaign, verdict, lasted_s))
    return run_summary.summary(campaign, verdict, lasted_s)


@contextmanager
def _cluster(place: Path) -> Iterator[FaultTarget]:
    cluster = LocalCluster(place, BROKERS, VOTERS, has_second_disks=True, may_all_vote=True)

    def log_directories() -> Mapping[int, Path]:
        cluster.stop()
        directories = ((id_, data, cluster.second_disks[id_]) for id_, data in cluster.data.items())
        return {id_: joined(place / f"replicas-{id_}", *of_broker) for id_, *of_broker in directories}

    try:
        yield FaultTarget("local", cluster, {}, log_directories)
    finally:
        cluster.kill()


def joined(view: Path, *directories: Path) -> Path:
    """Return a directory that shows the replicas of several log directories as those of one."""
    for directory in directories:
        for replica in (directory / TOPICS).glob("*/*"):
            shown = view / replica.relative_to(directory)
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.symlink_to(replica)
    return view


def _say(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    run_program(app)
