"""Loss of a broker's log directory under load, and its recovery: `python -m cordwood.chaos.live.wipe_disk`."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, workplace
from cordwood.chaos.live.report import quantile

app = typer.Typer(pretty_exceptions_enable=False)

BALLAST = "ballast"
BALLAST_PARTITIONS = 6
BALLAST_RECORD_BYTES = 50_000
BASELINE_S = 10.0
FILL_S = 300.0
MB = 10**6


@app.command()
def main(
    rounds: Rounds = 1,
    ballast_mb: Annotated[
        int, typer.Option(min=1, help="The amount of data that a broker must refetch, in MB.")
    ] = 2000,
    rate_mb_s: Annotated[float, typer.Option(help="The lowest allowed rate of the refetch.")] = 60.0,
    p99_ratio: Annotated[
        float, typer.Option(help="The largest allowed slowdown of acknowledgements by the other brokers.")
    ] = 2.0,
    per_second: PerSecond = 100,
    seed: Seed = 1,
    keep: Keep = None,
) -> None:
    """Delete a broker's log directory while idempotent producers write, and start the broker on an empty one.

    The broker must be in sync again in time, the others' acknowledgements must not become much slower, and nothing may
    be lost. Exits with 1 where it is not so.
    """
    with workplace(keep) as place:
        run = ClusterRounds("wipe_disk", LocalCluster(place), place, Workload(per_second=per_second), seed)
        report = run.run(rounds, lambda run: wipe(run, ballast_mb * MB, rate_mb_s, p99_ratio))
    report.tell()


def wipe(run: ClusterRounds, ballast_bytes: int, rate_mb_s: float, p99_ratio: float) -> None:
    """Delete one broker's log directory, and measure the recovery."""
    if not any(view.topic == BALLAST for view in run.cluster.partitions()):
        run.cluster.create_topic(BALLAST, BALLAST_PARTITIONS)
        fill(run.cluster.bootstrap, ballast_bytes)
        run.cluster.wait_in_sync()
    victim = run.rng.choice(run.cluster.ids)
    before_from = time.monotonic()
    time.sleep(BASELINE_S)
    wiped_at = time.monotonic()
    run.cluster.wiped(victim)
    run.served_again("produce_possible_again", wiped_at)
    started_at = time.monotonic()
    run.cluster.start([victim])
    run.wait_in_sync()
    ended_at = time.monotonic()
    rate = _size_bytes(run.cluster.brokers[victim].data) / (ended_at - started_at) / MB
    run.served_again("produce_possible_after_it_is_back", ended_at)
    before, during = _p99_ms(run, before_from, wiped_at), _p99_ms(run, started_at, ended_at)
    run.report.figures |= {
        "rate_mb_s": round(rate, 1),
        "p99_ms_before": round(before, 2),
        "p99_ms_during": round(during, 2),
    }
    if rate < rate_mb_s:
        run.report.accuse("slow", f"{rate:.1f} MB/s, where {rate_mb_s:g} are due")
    if during > before * p99_ratio:
        run.report.accuse("slow", f"acknowledgements at p99: {before:.1f} ms before, {during:.1f} ms during")


def fill(bootstrap: str, size_bytes: int) -> None:
    """Produce `size_bytes` to the ballast topic, acknowledged. Raises TimeoutError where they are not in time."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 900_000, "linger.ms": 20, "log_level": 0})
    record = bytes(range(250)) * (BALLAST_RECORD_BYTES // 250)
    for number in range(size_bytes // BALLAST_RECORD_BYTES):
        while len(producer) > 1000:
            producer.poll(0.05)
        producer.produce(BALLAST, record, partition=number % BALLAST_PARTITIONS)
    if producer.flush(FILL_S):
        raise TimeoutError("the ballast was not acknowledged in time")


def _p99_ms(run: ClusterRounds, start: float, end: float) -> float:
    waits = [answer.answered_at - answer.sent_at for _, answer in run.clients.answers if start <= answer.sent_at < end]
    return quantile(waits, 0.99) * 1e3 if waits else 0.0


def _size_bytes(data: Path) -> int:
    """Return the bytes of all files, without the space preallocated past their ends."""
    files: Collection[Path] = [path for path in data.rglob("*") if path.is_file()]
    return sum(min(path.stat().st_size, path.stat().st_blocks * 512) for path in files)


if __name__ == "__main__":
    app()
