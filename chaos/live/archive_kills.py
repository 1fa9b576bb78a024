"""Kills at random steps of cleaning, upload and restoration: `python -m cordwood.chaos.live.archive_kills`.

Three brokers archive every topic to a loopback S3 server, and compact one. A broker is killed during an upload or a
compaction, which metrics and disk show. In the end everything that was acknowledged is read, mostly from the archive,
and the archive is verified. Then the cluster is restored from it again and again, and each time the command is killed
at a random step and repeated: all bytes have to be those of a restoration without a kill.
"""

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live import run_summary
from cordwood.chaos.live.archived_records import ArchivedRecords
from cordwood.chaos.live.campaign import WENT_WRONG, Campaign, unavailable
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.compacted_client import CONFIGS, PARTITIONS, CompactedClient
from cordwood.chaos.live.faults.archive import BusyKill, is_compacting, is_uploading
from cordwood.chaos.live.faults.fault import AT_ONCE_S, NO_ACK_BY_NONE, NOTHING_TWICE, Form, RoundOptions
from cordwood.chaos.live.load_clients import LoadOnCluster
from cordwood.chaos.live.object_servers import PROGRAMS, Gateway, Moto, NoServer, ObjectServer, open_server
from cordwood.chaos.live.options import Keep, Seed, workplace
from cordwood.chaos.live.plan import TargetRole
from cordwood.chaos.live.process import run_cordwood, wait_for
from cordwood.chaos.live.restorations import Restorations
from cordwood.chaos.live.rounds import Rounds
from cordwood.chaos.live.target import FaultTarget
from cordwood.chaos.live.verdict import RunVerdict, judge
from cordwood.chaos.program import run_program
from cordwood.chaos.recorded import ARCHIVE_KILLS
from cordwood.chaos.results import begun, ended

GRACE_S = 6.0
SETTLED_S, RESTORED_S = 120.0, 60.0
SETTINGS = {
    "remote.storage.enable": "true",
    "log.local.retention.bytes": "262144",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "archive.grace.ms": str(int(GRACE_S * 1000)),
    "archive.roll.ms": "3000",
    "archive.compacted.delay.ms": "1000",
    "archive.cache.bytes": str(4 << 20),
}
OPTIONS = RoundOptions(limits=(NO_ACK_BY_NONE, NOTHING_TWICE), hold_s=AT_ONCE_S, is_survived=True)
SEGMENT_BYTES = 64 << 10
RESTORATIONS_SHARE = 0.3
UNKNOWN = "no manifest has the segment"

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    rounds: Annotated[int, typer.Option(min=2, help="Kills, three in ten of them of restorations.")] = 20,
    seed: Seed = 1,
    per_second: Annotated[int, typer.Option(min=1, help="Records that each of four producers sends.")] = 40,
    keep: Keep = None,
    recorded: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record the verdict as a result file, at a commit.")
    ] = None,
) -> None:
    """Kill brokers and restorations, and check everything. Exits with 1 if a promise was broken."""
    record = begun(recorded, ARCHIVE_KILLS, {"rounds": rounds, "seed": seed})
    restorations = int(rounds * RESTORATIONS_SHARE)
    with workplace(keep) as place:
        try:
            server = open_server(Gateway.name if (PROGRAMS / "versitygw").exists() else Moto.name, place / "store")
        except NoServer as reason:
            raise typer.BadParameter(str(reason)) from None
        with server:
            summary = _run(place, server, rounds - restorations, restorations, seed, per_second)
    ended(record, summary)
    typer.echo(json.dumps(summary))
    if summary["anomalies"]:
        raise typer.Exit(1)


def _run(
    place: Path, server: ObjectServer, kills: int, restorations: int, seed: int, per_second: int
) -> dict[str, object]:
    load = LoadOnCluster(f"archived-{seed}", seed, per_second=per_second, segment_bytes=SEGMENT_BYTES)
    credentials = server.write_credentials(place / "credentials")
    settings = {**SETTINGS, "archive.url": server.url, "archive.credentials.file": str(credentials)}
    store = ("--url", server.url, "--credentials-file", str(credentials))
    archived = ArchivedRecords(server.url, server.credentials)
    with _cluster(place, settings, archived) as target:
        cluster = target.cluster
        assert isinstance(cluster, LocalCluster)
        campaign = Campaign(target, load, place, _say, OPTIONS.limits)
        forms = {
            # Only leaders upload, and a broker that was killed may lead nothing until the next check for imbalance.
            "uploading": Form(BusyKill(cluster, is_uploading), TargetRole.LEADER),
            "compacting": Form(BusyKill(cluster, is_compacting), TargetRole.ANYONE),
        }
        rounds = Rounds(campaign, OPTIONS, forms, place)
        cluster.start()
        compacted = CompactedClient(cluster.bootstrap, f"compacted-{seed}", seed)
        try:
            cluster.create_topic(f"compacted-{seed}", PARTITIONS, CONFIGS)
            compacted.start()
            campaign.run_through(lambda: rounds.inject(kills))
            for anomaly in _checked(compacted, store):
                campaign.accuse(anomaly)
            lasted_s, verdict = campaign.now_s, judge(campaign)
        finally:
            campaign.clients.kill()
        rounds.measure(verdict)
        verdict.anomalies.extend(campaign.figures.exceeded(campaign.limits))
        repeated = Restorations(cluster, store, random.Random(seed), _say)
        verdict.anomalies.extend(repeated.run(restorations))
        verdict.anomalies.extend(_served(cluster, compacted))
        return _summary(campaign, verdict, lasted_s) | {
            "compacted_acknowledged": compacted.acknowledged,
            "restorations_killed": repeated.killed,
            "restored_files": repeated.files,
            "store": server.name,
        }


def _summary(campaign: Campaign, verdict: RunVerdict, lasted_s: float) -> dict[str, object]:
    for anomaly in verdict.anomalies:
        _say(f"{anomaly.kind}: {anomaly.sentence}")
    return run_summary.summary(campaign, verdict, lasted_s)


def _checked(compacted: CompactedClient, store: tuple[str, ...]) -> list[Anomaly]:
    """Return the findings about the compacted topic and the archive, once no upload is in progress."""
    try:
        compacted.stop()
        found = list(compacted.anomalies())
    except WENT_WRONG as failure:
        return [unavailable("as the compacted topic was read", failure)]
    verified = run_cordwood("archive", "verify", *store)
    if verified.returncode:
        found.append(Anomaly("damaged-archive", f"{verified.stdout} {verified.stderr}"[-2000:], (), 1))
    orphans: set[str] = set()

    def are_swept() -> bool:
        # Brokers delete removed segments and abandoned uploads once their grace period has passed: no copy remains.
        nonlocal orphans
        before, orphans = orphans, _orphans(store)
        time.sleep(2 * GRACE_S)
        return bool(before) and not before & orphans

    orphans = _orphans(store) or {""}
    if not wait_for(are_swept, SETTLED_S):
        sentence = f"{len(orphans)} objects are in no manifest, such as {sorted(orphans)[0]}."
        found.append(Anomaly("orphan", sentence, (), len(orphans)))
    return found


def _served(cluster: LocalCluster, compacted: CompactedClient) -> list[Anomaly]:
    """Start the restored brokers. Return the findings about their records."""
    try:
        cluster.start()
        cluster.wait_in_sync(RESTORED_S)
        return list(compacted.changes(compacted.read()))
    except WENT_WRONG as failure:
        return [unavailable("after the restoration", failure)]


def _orphans(store: tuple[str, ...]) -> set[str]:
    """Return the objects of segments, older than the grace period, that are in no manifest now."""
    hours = str(GRACE_S / 3600)
    swept = run_cordwood("archive", "sweep", *store, "--older-than-hours", hours)
    # Old commits are left to a sweep by an operator, where a broker was killed before it deleted them.
    return {line.partition(":")[0] for line in swept.stdout.splitlines() if UNKNOWN in line}


@contextmanager
def _cluster(place: Path, settings: Mapping[str, str], archived: ArchivedRecords) -> Iterator[FaultTarget]:
    with ExitStack() as stack:
        cluster = LocalCluster(place, settings=settings, has_http=True)
        stack.callback(cluster.kill)

        def log_directories() -> Mapping[int, Path]:
            cluster.stop()
            return cluster.data

        yield FaultTarget("local", cluster, {}, log_directories, archived.before)


def _say(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    run_program(app)
