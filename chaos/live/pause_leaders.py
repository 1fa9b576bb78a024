"""SIGSTOP of partition leaders under load, then SIGCONT: `python -m cordwood.chaos.live.pause_leaders --rounds 50`."""

import time
from typing import Annotated

import typer

from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, workplace

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    rounds: Rounds = 50,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long a broker is paused.")] = 20.0,
    per_second: PerSecond = 100,
    seed: Seed = 1,
    keep: Keep = None,
) -> None:
    """Suspend a leader's process while idempotent producers write, wait for the failover, and resume the process.

    A deposed leader acknowledges nothing, and truncates what was never committed. At the end every acknowledged record
    must be there, once, in order, and the same on every replica. Exits with 1 where it is not.
    """
    with workplace(keep) as place:
        run = ClusterRounds("pause_leaders", LocalCluster(place), place, Workload(per_second=per_second), seed)
        run.run(rounds, lambda run: pause_leader(run, seconds)).tell()


def pause_leader(run: ClusterRounds, seconds: float) -> None:
    """Suspend a broker that leads a partition for `seconds`, and wait until it is in sync again."""
    victim = run.any_leader()
    led = run.cluster.led_by(victim, run.workload.topic)
    paused_at = time.monotonic()
    run.cluster.brokers[victim].pause()
    try:
        run.served_again("produce_possible_again", paused_at, led)
        time.sleep(max(paused_at + seconds - time.monotonic(), 0))
    finally:
        run.cluster.brokers[victim].resume()
    run.wait_in_sync()


if __name__ == "__main__":
    app()
