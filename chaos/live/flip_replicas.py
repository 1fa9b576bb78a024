"""Damaged and lost files of one replica, under load: `python -m cordwood.chaos.live.flip_replicas --rounds 100`."""

import random
import time
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from cordwood.chaos.live import replica_logs
from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.flip import Flip
from cordwood.chaos.live.lost_bytes import Harm, SegmentRemoval, Shortening, Zeros
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, chosen, workplace
from cordwood.chaos.live.process import run_cordwood, wait_for
from cordwood.cluster.broker.verify import verify
from cordwood.storage.errors import DamagedLog
from cordwood.storage.real_disk import RealDisk

app = typer.Typer(pretty_exceptions_enable=False)

SEGMENTS = "topics/*/*/*.log"
KINDS = {
    "segment": SEGMENTS,
    "closed_segment_while_running": SEGMENTS,
    "zeroed_range_while_running": SEGMENTS,
    "short_segment_while_running": SEGMENTS,
    "missing_segment_while_running": SEGMENTS,
    "missing_segment": SEGMENTS,
    "index": "topics/*/*/*.index",
    "epochs": "topics/*/*/leader-epochs",
    "journal": "metadata/journal",
    "snapshot": "metadata/*.snapshot",
}
"""The files to damage, by kind, as patterns below a log directory."""

WHILE_RUNNING = "_while_running"
"""Suffix of the kinds that damage a sealed segment of a running broker, which has to restore it byte by byte."""
MISSING = "missing_segment"
BYTES_MAX = 8
PRELOADED = "preloaded"
PRELOADED_VALUE_BYTES = 10_000
CHECKPOINTED_S = 12.0
"""The time after which an idle log has a checkpoint."""
REPAIRED_S = 60.0
LOOKED_AT_S = 0.5
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "4096",
    # A pass over all sealed segments takes far less than the time that a repair may take.
    "log.scrub.bytes.per.second": str(64 << 20),
}
WORKLOAD_CONFIGS = {"segment.bytes": str(256 << 10)}


@app.command()
def main(
    rounds: Rounds = 100,
    kinds: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(KINDS)}.")] = None,
    per_second: PerSecond = 60,
    seed: Seed = 1,
    keep: Keep = None,
    preload_mb: Annotated[int, typer.Option(help="Megabytes that each broker holds before the first round.")] = 0,
) -> None:
    """Damage or remove one broker's files in turn while idempotent producers write, and check that all are repaired.

    `cordwood log verify` must name a file that is damaged while its broker is stopped. Within a minute the broker must
    have what the others have, and a sealed segment that was damaged while it ran must be as before, byte by byte. No
    reader may ever get a wrong byte. Exits with 1 where it is not so.
    """
    workload = Workload(per_second=per_second, topic_configs=WORKLOAD_CONFIGS)
    turns = chosen(kinds, KINDS)
    with workplace(keep) as place:
        cluster = LocalCluster(place, settings=SETTINGS)
        run = ClusterRounds("flip_replicas", cluster, place, workload, seed)

        def fault(run: ClusterRounds) -> None:
            if not run.report.rounds and preload_mb:
                preload(run.cluster, preload_mb)
            flip_replica(run, turns[run.report.rounds % len(turns)])

        run.run(rounds, fault).tell()


def preload(cluster: LocalCluster, megabytes: int) -> None:
    """Fill a topic of its own, and wait until its sealed segments are below the recovery point."""
    cluster.create_topic(PRELOADED, 1, {"segment.bytes": str(16 << 20)})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range((megabytes << 20) // PRELOADED_VALUE_BYTES):
        producer.produce(PRELOADED, b"%0*d" % (PRELOADED_VALUE_BYTES, number))
        if number % 1000 == 0:
            producer.flush(REPAIRED_S)
    producer.flush(REPAIRED_S)
    time.sleep(CHECKPOINTED_S)


def flip_replica(run: ClusterRounds, kind: str) -> None:
    """Harm one file of a kind on one broker, and wait until it is repaired.

    A broker that runs has to restore its closed segment byte by byte.
    """
    victim = run.rng.choice(run.cluster.ids)
    broker = run.cluster.brokers[victim]
    is_running = kind.endswith(WHILE_RUNNING)
    if not is_running:
        run.rng.choice((broker.kill, broker.stop))()
    harms = choose(broker.data, kind, run.rng)
    committed = _ends(run, victim)
    before = (broker.data / harms[0].path).read_bytes() if harms else b""
    for harm in harms:
        harm.apply(broker.data)
    typer.echo(f"broker {victim}, {kind}: {', '.join(map(str, harms)) or 'there is none yet'}", err=True)
    if not is_running:
        if harms and not _is_named(broker.data, harms[0].path):
            run.report.accuse("unnamed", f"log verify did not name {harms[0].path}")
        run.cluster.start([victim])
    if harms:
        path, began = harms[0].path, time.monotonic()
        if wait_for(
            lambda: (
                _is_repaired(run, victim, path, committed)
                and (not is_running or _is_as_before(broker.data / path, before))
            ),
            REPAIRED_S,
        ):
            run.report.took(f"{kind}_repaired", time.monotonic() - began)
        else:
            run.report.accuse("unrepaired", f"{path} of broker {victim} after {REPAIRED_S:.0f} s")
    else:
        run.report.count(f"{kind}_not_there")
    run.wait_in_sync()


def choose(data: Path, kind: str, rng: random.Random) -> list[Harm]:
    """Return damage to one file of this kind; none where there is no such file yet."""
    files = sorted(path for path in data.glob(KINDS[kind]) if path.is_file() and path.stat().st_size)
    if kind.endswith(WHILE_RUNNING) or kind == MISSING:
        last = {max(path.parent.glob("*.log")) for path in files}
        files = [path for path in files if path not in last]
    files = [path for path in files if path.read_bytes().rstrip(b"\0")]
    if not files:
        return []
    path = rng.choice(files)
    name, size = path.relative_to(data), len(path.read_bytes().rstrip(b"\0"))
    match kind.removesuffix(WHILE_RUNNING):
        case "zeroed_range":
            start = rng.randrange(size)
            return [Zeros(name, start, rng.randrange(size - start) + 1)]
        case "short_segment":
            return [Shortening(name, rng.randrange(size))]
        case "missing_segment":
            return [SegmentRemoval(name, with_index=rng.random() < 0.5)]
        case _:
            positions = rng.sample(range(size), min(rng.randint(1, BYTES_MAX), size))
            return [Flip(name, position, rng.randrange(8)) for position in sorted(positions)]


def _ends(run: ClusterRounds, victim: int) -> dict[replica_logs.Replica, int]:
    """Return the smallest log end offset of the others' replicas, for each partition that the victim has."""
    others = [data for id_, data in run.cluster.data.items() if id_ != victim]
    return {
        replica: min(replica_logs.end_offset(data, replica) for data in others)
        for replica in replica_logs.replicas_in(run.cluster.data[victim])
    }


def _is_named(data: Path, path: Path) -> bool:
    verified = run_cordwood("log", "verify", str(data))
    return verified.returncode == 1 and str(path) in verified.stdout


def _is_as_before(path: Path, before: bytes) -> bool:
    try:
        return path.read_bytes().rstrip(b"\0") == before.rstrip(b"\0")
    except FileNotFoundError:
        return False


def _is_repaired(run: ClusterRounds, victim: int, path: Path, committed: dict[replica_logs.Replica, int]) -> bool:
    """Return whether the file is sound or gone, and the victim's replica is the same as another's."""
    time.sleep(LOOKED_AT_S)
    data = run.cluster.data
    try:
        if (data[victim] / path).exists() and list(verify(RealDisk(), str(data[victim] / path))):
            return False
        if path.parts[0] != replica_logs.TOPICS:
            return True
        replica = path.parts[1], path.parts[2]
        other = next(id_ for id_ in data if id_ != victim)
        logs = {id_: data[id_] for id_ in (victim, other)}
        return not list(replica_logs.differences(logs, replica, committed[replica]))
    except (OSError, DamagedLog):
        # The broker replaced or removed the file meanwhile.
        return False


if __name__ == "__main__":
    app()
