"""Power cuts of a whole cluster or of one broker, under load: `python -m cordwood.chaos.live.blackouts --rounds 50`."""

import contextlib
import time
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, workplace
from cordwood.chaos.live.power_cut import CannotMount, LoopFileSystem
from cordwood.chaos.live.report import RoundsReport

app = typer.Typer(pretty_exceptions_enable=False)

BROKERS = 3


@app.command()
def main(
    rounds: Rounds = 50,
    one: Annotated[bool, typer.Option(help="Cut the power of one broker at a time instead of all together.")] = False,
    size_mib: Annotated[int, typer.Option(min=64, help="Size of each broker's file system in MiB.")] = 4096,
    per_second: PerSecond = 200,
    seed: Seed = 1,
    keep: Keep = None,
) -> None:
    """Cut the power of the brokers' disks while idempotent producers write, and start the brokers again.

    Each disk is an ext4 file system in a file, so this needs root. At the end every acknowledged record must be there,
    once, in order, and the same on every replica. Exits with 1 where it is not, with 2 where no file system can be
    mounted.
    """
    try:
        with workplace(keep) as place, contextlib.ExitStack() as stack:
            disks: dict[int, LoopFileSystem] = {}
            for id_ in range(1, BROKERS + 1):
                home = place / f"disk-{id_}"
                home.mkdir()
                disks[id_] = stack.enter_context(LoopFileSystem(home, size_mib << 20))
            report = _run_on(disks, place, rounds, is_one=one, per_second=per_second, seed=seed)
    except CannotMount as reason:
        typer.echo(f"The power cannot be cut on this machine: {reason}.", err=True)
        raise typer.Exit(2) from None
    report.tell()


def _run_on(
    disks: dict[int, LoopFileSystem], place: Path, rounds: int, *, is_one: bool, per_second: int, seed: int
) -> RoundsReport:
    cluster = LocalCluster(place, BROKERS, disks={id_: disk.path for id_, disk in disks.items()})
    name = "blackout_of_one" if is_one else "blackout_of_all"
    run = ClusterRounds(name, cluster, place, Workload(per_second=per_second), seed)

    def fault(run: ClusterRounds) -> None:
        cut_power(run, disks, [run.rng.choice(run.cluster.ids)] if is_one else run.cluster.ids)

    return run.run(rounds, fault)


def cut_power(run: ClusterRounds, disks: dict[int, LoopFileSystem], victims: list[int]) -> None:
    """Cut the power of these brokers' disks together, and start the brokers again on what their disks kept."""
    for victim in victims:
        disks[victim].cut_power()
    cut_at = time.monotonic()
    for victim in victims:
        run.cluster.brokers[victim].kill()
    for victim in victims:
        disks[victim].restore_power()
    if len(victims) < len(run.cluster.ids):
        run.served_again("produce_possible_again", cut_at)
    started_at = time.monotonic()
    run.cluster.start(victims)
    run.served_again("produce_possible_after_start", started_at)
    run.wait_in_sync()


if __name__ == "__main__":
    app()
