"""SIGKILL of partition leaders under load: `python -m cordwood.chaos.live.kill_leaders --rounds 100`."""

import time
from typing import Annotated

import typer

from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, workplace

app = typer.Typer(pretty_exceptions_enable=False)

SERVED = "produce_possible_again"


@app.command()
def main(
    rounds: Rounds = 100,
    controller: Annotated[bool, typer.Option(help="Kill the controller's broker, not any leader.")] = False,
    brokers: Annotated[int, typer.Option(min=1, help="Brokers; the first three keep the metadata.")] = 3,
    partitions: Annotated[int, typer.Option(min=1)] = 6,
    producers: Annotated[int, typer.Option(min=1)] = 4,
    per_second: PerSecond = 200,
    p50: Annotated[float, typer.Option(help="Seconds without produce that are allowed at the median.")] = 1.5,
    p99: Annotated[float, typer.Option(help="And at p99.")] = 2.5,
    seed: Seed = 1,
    keep: Keep = None,
) -> None:
    """Kill leaders with SIGKILL while idempotent producers write, and start them again.

    At the end every acknowledged record must be there, once, in order, and the same on every replica. Exits with 1
    where it is not, or where a failover took too long.
    """
    workload = Workload(partitions=partitions, producers=producers, per_second=per_second)
    with workplace(keep) as place:
        name = "kill_controller" if controller else "kill_leaders"
        run = ClusterRounds(name, LocalCluster(place, brokers), place, workload, seed)
        report = run.run(rounds, kill_controller if controller else kill_leader)
    report.limit(SERVED, 0.5, p50)
    report.limit(SERVED, 0.99, p99)
    report.tell()


def kill_leader(run: ClusterRounds) -> None:
    """Kill a broker that leads a partition, wait for the failover, start the broker, and wait until it is in sync."""
    _kill(run, run.any_leader())


def kill_controller(run: ClusterRounds) -> None:
    """Do the same with the broker that is the active controller."""
    _kill(run, run.cluster.controller())


def _kill(run: ClusterRounds, victim: int) -> None:
    led = run.cluster.led_by(victim, run.workload.topic)
    killed_at = time.monotonic()
    run.cluster.brokers[victim].kill()
    if len(run.cluster.ids) > 1:
        run.served_again(SERVED, killed_at, led)
    run.cluster.start([victim])
    run.wait_in_sync()


if __name__ == "__main__":
    app()
