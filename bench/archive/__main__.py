"""`python -m cordwood.bench.archive`: a topic larger than the disks, on three local brokers and a loopback S3 server.

The store and the readers of archived records run at a lower priority than the brokers: they are on other machines
otherwise. Produce rates with and without archive are measured in turn, in the same run.
"""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cordwood.bench import machine
from cordwood.bench.archive.brokers import ArchivingBrokers
from cordwood.bench.archive.phases import ArchiveWorkload, Bench, NotCaughtUp
from cordwood.bench.generator import Generator, LoadFailed, load_generator
from cordwood.bench.systems import CannotRun
from cordwood.chaos.live.object_servers import PROGRAMS, Gateway, Moto, NoServer, ObjectServer, open_server
from cordwood.chaos.program import run_program
from cordwood.chaos.results import begun, ended

KIND = "bench-archive"
DISTANT = ("nice", "-n", "10")
LOCAL_SHARE, LOCAL_BYTES_MIN = 20, 120_000_000
CACHE_BYTES = 64 << 20
SETTINGS = {
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "archive.cache.bytes": str(CACHE_BYTES),
}
VERIFIED_S = READING_LIMIT_S = 900.0


def main(
    size: Annotated[int, typer.Option("--bytes", min=10**8, help="Bytes of the topic.")] = 2 * 10**9,
    local: Annotated[
        int | None, typer.Option("--local-bytes", help="Bytes that each disk keeps; by default a twentieth.")
    ] = None,
    outage: Annotated[float, typer.Option(min=1, help="Seconds without the store.")] = 30.0,
    store: Annotated[str, typer.Option(help=f"{Gateway.name} or {Moto.name}.")] = Gateway.name,
    data: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="The directory for all data during the run.")
    ] = None,
    home: Annotated[Path, typer.Option(help="Where the programs are built.")] = PROGRAMS,
    reader_mb_s: Annotated[
        float, typer.Option("--reader-mb-s", min=0, help="Largest rate of the reader beside others; 0 for none.")
    ] = 0,
    warm_gib: Annotated[int, typer.Option(help="Memory to touch first.")] = 0,
    recorded: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record the figures as a result file, at a commit.")
    ] = None,
) -> None:
    """Measure the archive. Prints the figures as one line of JSON; exits with 1 if a phase failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = ArchiveWorkload(size, local or max(size // LOCAL_SHARE, LOCAL_BYTES_MIN), outage, reader_mb_s)
    about = {
        "bytes": work.archived_bytes,
        "local_bytes": work.local_bytes,
        "outage_s": outage,
        "store": store,
        "reader_mb_s": reader_mb_s,
    }
    record = begun(recorded, KIND, about)
    try:
        load = load_generator(home, _say)
        with machine.memory_kept(), tempfile.TemporaryDirectory(prefix="archive-", dir=data) as place:
            machine.warm_memory(warm_gib)
            with open_server(store, Path(place) / "store", DISTANT, home) as server:
                figures = _measured(work, server, load, Path(place))
    except (CannotRun, NoServer, LoadFailed, NotCaughtUp) as failure:
        _say(str(failure))
        raise typer.Exit(1) from None
    ended(record, figures)
    typer.echo(json.dumps(about | figures))


def _measured(work: ArchiveWorkload, server: ObjectServer, load: Generator, place: Path) -> dict[str, object]:
    """Run all phases. Raises CannotRun, LoadFailed, NotInTime."""
    credentials = server.write_credentials(place / "credentials")
    archive = {"archive.url": server.url, "archive.credentials.file": str(credentials)}
    brokers = ArchivingBrokers(SETTINGS | archive)
    brokers.prepare()
    directory = place / "brokers"
    directory.mkdir()
    distant = Generator(load.name, (*DISTANT, *load.command), load.ca, READING_LIMIT_S)
    with brokers.running(directory) as running:
        bench = Bench(work, brokers, running, server, load, distant, _say)
        bench.create_topics()
        with bench.disks.watched():
            for phase in (
                bench.produce,
                bench.read_cold,
                bench.read_beside_others,
                bench.outage,
                bench.read_everything,
            ):
                phase()
                _say(f"{phase.__name__}: {json.dumps(bench.figures)}")
        bench.figures["verified"] = _verified(server.url, credentials)
    return bench.figures


def _verified(url: str, credentials: Path) -> str:
    """Return the last line of `cordwood archive verify`. Raises LoadFailed if an object is missing or damaged."""
    options = ["--url", url, "--credentials-file", str(credentials)]
    done = subprocess.run(
        [sys.executable, "-m", "cordwood.cluster.cli", "archive", "verify", *options],
        capture_output=True,
        text=True,
        timeout=VERIFIED_S,
        check=False,
    )
    if done.returncode:
        raise LoadFailed(f"cordwood archive verify: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.stdout.strip().splitlines()[-1]


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    run_program(main)
