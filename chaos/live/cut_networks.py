"""Network partitions between brokers under load: `python -m cordwood.chaos.live.cut_networks --rounds 50`."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated

import typer

from cordwood.chaos.live import network
from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.network import Direction, NamespaceNetwork, NetworkUnavailable
from cordwood.chaos.live.options import Keep, PerSecond, Rounds, Seed, chosen, workplace

app = typer.Typer(pretty_exceptions_enable=False)

BROKERS = 3


@dataclass(frozen=True, slots=True)
class Scene:
    """The brokers by role at the start of the partition. `leader` leads one of the topic's partitions."""

    links: NamespaceNetwork
    leader: int
    other: int
    third: int
    controller: int


CUTS: Mapping[str, Callable[[Scene], Iterable[Direction]]] = {
    "leader_alone": lambda scene: scene.links.around(scene.leader),
    "follower_alone": lambda scene: scene.links.around(scene.other),
    "controller_alone": lambda scene: scene.links.around(scene.controller),
    "leader_mute": lambda scene: scene.links.out_of(scene.leader),
    "leader_deaf": lambda scene: scene.links.towards(scene.leader),
    "controller_mute": lambda scene: scene.links.out_of(scene.controller),
    "controller_deaf": lambda scene: scene.links.towards(scene.controller),
    "two_apart": lambda scene: [(scene.leader, scene.other), (scene.other, scene.leader)],
    "one_way": lambda scene: [(scene.leader, scene.other)],
    "all_apart": lambda scene: permutations(scene.links.ids, 2),
}
"""The directions that each partition cuts. Clients reach every broker all the time."""

NOBODY_MAY_ACKNOWLEDGE = "all_apart"


@app.command()
def main(
    rounds: Rounds = 50,
    seconds_min: Annotated[float, typer.Option(min=0, help="The shortest cut.")] = 3.0,
    seconds_max: Annotated[float, typer.Option(min=0, help="The longest.")] = 8.0,
    kinds: Annotated[list[str] | None, typer.Option(help="Only these: leader_alone, one_way, …")] = None,
    per_second: PerSecond = 150,
    seed: Seed = 1,
    keep: Keep = None,
) -> None:
    """Cut the network between brokers in each way in turn while idempotent producers write, and restore it.

    At the end every acknowledged record must be there, once, in order, and the same on every replica. Exits with 1
    where it is not, with 2 where no network can be made.
    """
    turns = chosen(kinds, CUTS)
    try:
        network.enter()
        links = NamespaceNetwork(range(1, BROKERS + 1))
    except NetworkUnavailable as reason:
        typer.echo(f"The network cannot be cut on this machine: {reason}.", err=True)
        raise typer.Exit(2) from None
    with workplace(keep) as place:
        hosts = {id_: links.address(id_) for id_ in links.ids}
        cluster = LocalCluster(place, BROKERS, hosts=hosts, inside={id_: links.inside(id_) for id_ in links.ids})
        run = ClusterRounds("cut_networks", cluster, place, Workload(per_second=per_second), seed)

        def fault(run: ClusterRounds) -> None:
            cut = turns[run.report.rounds % len(turns)]
            cut_and_heal(run, links, cut, run.rng.uniform(seconds_min, seconds_max))

        run.run(rounds, fault).tell()


def cut_and_heal(run: ClusterRounds, links: NamespaceNetwork, cut: str, seconds: float) -> None:
    """Cut the network for `seconds`, restore it, and wait until all partitions take records and are in sync again."""
    leader = run.any_leader()
    other, third = run.rng.sample([id_ for id_ in links.ids if id_ != leader], 2)
    scene = Scene(links, leader, other, third, run.cluster.controller())
    typer.echo(f"{cut} for {seconds:.1f} s: {scene.leader=} {scene.other=} {scene.controller=}", err=True)
    links.cut(CUTS[cut](scene))
    cut_at = time.monotonic()
    everything = range(run.workload.partitions)
    waited = run.clients.served_after(cut_at, everything, seconds)
    time.sleep(max(cut_at + seconds - time.monotonic(), 0))
    links.heal()
    healed_at = time.monotonic()
    if waited and cut == NOBODY_MAY_ACKNOWLEDGE:
        run.report.accuse("split-brain", f"partitions {sorted(waited)} acknowledged while every broker was alone")
    if len(waited) == len(everything):
        run.report.took(f"{cut}_served_during_the_cut", max(waited.values()))
    else:
        run.report.count(f"{cut}_not_served_during_the_cut")
    run.served_again("produce_possible_after_healing", healed_at)
    run.wait_in_sync()


if __name__ == "__main__":
    app()
