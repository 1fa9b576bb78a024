"""`cordwood archive`: the contents of an archive, its verification and sweep, and the restoration of a cluster from it.

These commands read the object store itself and need no broker.
"""

import os
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import unquote, urlsplit

import typer

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.option_groups import with_groups
from cordwood.cluster.cli.options import REPLICAS_MAX, AsJson
from cordwood.cluster.cli.output import note, print_json, print_json_line, print_rows

if TYPE_CHECKING:
    from cordwood.archive.obstore_store import ObstoreStore
    from cordwood.archive.verify import PartitionVerified
    from cordwood.cluster.broker.restoration import RestoredPartition, RestoreTarget

HOUR_MS = 3600 * 1000

Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, help="Read an archive without brokers, and restore a cluster from it.")


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The archive of one cluster."""

    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="CORDWOOD_ARCHIVE_URL",
            metavar="URL",
            help="The archive.url of the brokers: s3://bucket/prefix, gs://…, az://container/prefix or"
            " file:///directory.",
        ),
    ]
    credentials: Annotated[
        Path | None,
        typer.Option(
            "--credentials-file",
            envvar="CORDWOOD_ARCHIVE_CREDENTIALS_FILE",
            metavar="FILE",
            help="A file of obstore's settings, such as aws_access_key_id. The environment has the rest.",
        ),
    ] = None
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", metavar="ID", help="The cluster, if the archive has more than one.")
    ] = ""


Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Only this topic; may be repeated.")]


@app.command()
@with_groups
def status(
    archive: ArchiveOptions,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Show the offsets and sizes of the archived partitions. Reads names, sizes and commits only."""
    found = _run(_verified(archive, topics or [], reads_all=False))
    headings = ["topic", "partition", "start", "end", "segments", "bytes", "findings"]
    rows = [{**_row(one), "findings": len(one.findings)} for one in found]
    print_rows(rows, headings, as_json, "The archive has no partitions.")


@app.command()
@with_groups
def verify(
    archive: ArchiveOptions,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Read every object and compare it with its checksum. Exits with 1 if one is missing or damaged."""
    found = _run(_verified(archive, topics or [], reads_all=True))
    findings = [finding for one in found for finding in one.findings]
    if as_json:
        rows = [{**_row(one), "findings": [finding._asdict() for finding in one.findings]} for one in found]
        print_json({"ok": not findings, "partitions": rows})
    else:
        for finding in findings:
            typer.echo(f"{finding.topic}-{finding.partition}: {finding.name}: {finding.what}")
    if findings:
        raise Failure(f"the archive is damaged: {len(findings)} findings.")
    if not as_json:
        size = sum(one.size for one in found)
        typer.echo(f"{len(found)} partitions, {sum(one.segments for one in found)} segments, {size} bytes: no damage")


@app.command()
@with_groups
def sweep(
    archive: ArchiveOptions,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the objects; without it they are only listed.")
    ] = False,
    older_than_hours: Annotated[
        float,
        typer.Option(
            "--older-than-hours",
            min=0,
            help="Pass over younger objects, and those that are not so much older than their partition's last commit.",
        ),
    ] = 24,
    as_json: AsJson = False,
) -> None:
    """List, and with --delete remove, objects that no manifest has. Brokers sweep the leftovers that they know of."""

    async def work() -> tuple[int, int]:
        from cordwood.archive import sweep as sweeping
        from cordwood.archive.sweep import orphans

        store, cluster = await _opened(archive)
        found: list[sweeping.Orphan] = []
        async for orphan in orphans(store, cluster, _now_ms(), int(older_than_hours * HOUR_MS)):
            if as_json:
                print_json_line(orphan._asdict())
            else:
                typer.echo(f"{orphan.name}: {orphan.size} bytes, {orphan.why}")
            found.append(orphan)
        if delete:
            for left in await sweeping.delete(store, cluster, found):
                found.remove(left)
        return len(found), sum(orphan.size for orphan in found)

    count, size = _run(work())
    note(f"{count} objects, {size} bytes, {'deleted' if delete else 'may be deleted: repeat with --delete'}.")


LogDirs = Annotated[
    list[str],
    typer.Option(
        "--log-dir", metavar="ID=DIRECTORY", help="node.id and first log.dirs of a broker here; may be repeated."
    ),
]
Brokers = Annotated[
    str, typer.Option(metavar="ID,…", help="All brokers of the cluster, if some are on other machines.")
]
Voters = Annotated[
    str,
    typer.Option(
        metavar="ID,…",
        help="The brokers in controller.quorum.voters. Default: all brokers, or none for a single broker.",
    ),
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option("--replication-factor", min=1, max=REPLICAS_MAX, help="Of all topics, instead of their own."),
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Let the brokers start although records cannot be restored.")
]
AllLocal = Annotated[
    bool,
    typer.Option("--all-local", help="Write all records to the disks, and not only those within local.retention.*."),
]


@app.command()
@with_groups
def restore(
    archive: ArchiveOptions,
    log_dirs: LogDirs,
    brokers: Brokers = "",
    voters: Voters = "",
    replication_factor: ReplicationFactor = None,
    accept_loss: AcceptLoss = False,
    all_local: AllLocal = False,
    as_json: AsJson = False,
) -> None:
    """Restore a cluster that has lost its disks: topics with their ids, all archived records, and group offsets.

    The log directories must be empty, and no broker may run. With directories on several machines, run the command on
    each of them with the same --brokers and --voters: each prints the same plan. A command that was interrupted is
    repeated. Users, ACLs, tokens and configs of brokers are not in the archive.
    """
    targets = _targets(log_dirs)
    known = sorted(_numbers(brokers, "--brokers") or [target.node_id for target in targets])
    quorum = _numbers(voters, "--voters") or (known if len(known) > 1 else [])
    if not {target.node_id for target in targets} <= set(known) or not set(quorum) <= set(known):
        raise Failure("--brokers must name every broker of --log-dir and --voters.", ExitCode.USAGE)

    async def work() -> tuple[str, list[str], list["RestoredPartition"]]:
        from asyncio import to_thread

        from cordwood.cluster.broker import restoration
        from cordwood.storage.real_disk import RealDisk

        store, cluster = await _opened(archive)
        wanted = await restoration.plan(store, cluster, known, quorum, replication_factor)
        done = []
        async for one in restoration.restore(
            store,
            wanted,
            targets,
            RealDisk(),
            _now_ms(),
            to_thread,
            accepts_losses=accept_loss,
            is_all_local=all_local,
        ):
            done.append(one)
            _report(one, as_json)
        return wanted.id, list(wanted.passed_over), done

    with ExitStack() as locked:
        for target in targets:
            locked.callback(os.close, _locked(target.directory))
        plan_id, passed_over, done = _run(work())
    for sentence in passed_over:
        note(f"{sentence}.")
    records = sum(one.log.end - one.log.log_start for one in done if one.log is not None)
    note(f"Plan {plan_id}: {len(done)} partitions with {records} offsets. The brokers may start.")


def _report(one: "RestoredPartition", as_json: bool) -> None:
    """Print one partition, and what of it is missing."""
    log = one.log
    missing = [] if log is None else [loss._asdict() for loss in log.losses]
    if as_json:
        ends = {} if log is None else {"start": log.log_start, "local_start": log.local_start, "end": log.end}
        fields = {"topic": one.topic, "partition": one.partition, **ends}
        print_json_line({**fields, "missing": missing, "commits_missing": list(one.gaps)})
        return
    what = "empty" if log is None else f"offsets {log.log_start} to {log.end}, {log.size} bytes"
    typer.echo(f"{one.topic}-{one.partition}: {what}")
    for loss in missing:
        typer.echo(f"  MISSING offsets {loss['start']} to {loss['end']}: {loss['what']}")
    if one.gaps:
        typer.echo(f"  MISSING commits {', '.join(map(str, one.gaps))}: later segments are not restored")


def _row(one: "PartitionVerified") -> dict[str, object]:
    return {
        "topic": one.topic.name,
        "partition": one.partition,
        "start": one.start,
        "end": one.end,
        "segments": one.segments,
        "bytes": one.size,
    }


async def _verified(archive: ArchiveOptions, topics: list[str], *, reads_all: bool) -> list["PartitionVerified"]:
    from cordwood.archive.verify import verify as partitions

    store, cluster = await _opened(archive)
    found = [one async for one in partitions(store, cluster, topics, reads_all=reads_all)]
    missing = sorted(set(topics) - {one.topic.name for one in found})
    if missing:
        raise Failure(f"the archive has no topic {missing[0]!r}.", ExitCode.USAGE)
    return found


async def _opened(archive: ArchiveOptions) -> tuple["ObstoreStore", str]:
    """Return the store and the cluster's id. Raises Failure."""
    from cordwood.archive.commits import read_clusters
    from cordwood.archive.obstore_store import credentials_in, open_store

    url, cluster_id = archive.url, archive.cluster_id
    # Opened for a broker, a directory is made if it is missing.
    if url.startswith("file://") and not Path(unquote(urlsplit(url).path)).is_dir():
        raise Failure(f"{url} has no archive.")
    store = open_store(url, {} if archive.credentials is None else credentials_in(str(archive.credentials)))
    known = await read_clusters(store)
    if cluster_id in known:
        return store, cluster_id
    if not known:
        raise Failure(f"{url} has no archive.")
    if cluster_id or len(known) > 1:
        raise Failure(f"name one of the archive's clusters with --cluster-id: {', '.join(known)}.", ExitCode.USAGE)
    return store, known[0]


def _targets(log_dirs: list[str]) -> list["RestoreTarget"]:
    """Return the log directories by broker. Raises Failure."""
    from cordwood.cluster.broker.restoration import RestoreTarget

    targets = []
    for text in log_dirs:
        number, separator, directory = text.partition("=")
        if not separator or not number.isdecimal() or not directory:
            raise Failure(f"{text!r} is not ID=DIRECTORY, such as 1=/var/lib/cordwood.", ExitCode.USAGE)
        targets.append(RestoreTarget(int(number), os.path.abspath(directory)))
    for values in ([target.node_id for target in targets], [target.directory for target in targets]):
        if len(set(values)) < len(values):
            raise Failure("each --log-dir needs its own broker and directory.", ExitCode.USAGE)
    return targets


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",") if number]
    except ValueError:
        raise Failure(f"{option} takes ids with commas between them, such as 1,2,3.", ExitCode.USAGE) from None


def _locked(directory: str) -> int:
    """Lock a log directory, which is made if it is missing. Raises Failure."""
    from cordwood.storage.real_disk import lock_directory

    try:
        os.makedirs(directory, exist_ok=True)
        return lock_directory(directory)
    except OSError as error:
        raise Failure(f"{directory}: {error.strerror}.") from None


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command. Errors of the store become a Failure."""
    import asyncio

    from cordwood.archive.store import StoreError
    from cordwood.cluster.broker.restoration import CannotRestore

    try:
        return asyncio.run(work)
    except StoreError as error:
        raise Failure(f"{error}.") from None
    except CannotRestore as error:
        raise Failure(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{error.filename or 'the disk'}: {error.strerror}.") from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
