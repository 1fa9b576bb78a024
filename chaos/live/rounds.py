"""Rounds of load, crash and restart of one broker, and their verdict: every acknowledged record, once, in order."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import typer

from cordwood.chaos.live.ack_log import BrokenPromise
from cordwood.chaos.live.load import ProducerLoad
from cordwood.chaos.live.process import BrokerProcess

TOPIC = "rounds"
ANOMALIES_SHOWN = 20
SERVED_S = 20.0
LOAD_S = (0.1, 1.0)
"""Seconds of load before each crash once the broker acknowledges again, minimum and maximum."""


@dataclass(frozen=True, slots=True)
class RoundVerdict:
    """The result of some rounds. `slowest_start_s` is from the start of the process to its first connection."""

    rounds: int
    acknowledged: int
    found: int
    slowest_start_s: float
    anomalies: list[BrokenPromise]

    def tell(self) -> None:
        """Print the result, and exit with 1 where a promise was broken."""
        for anomaly in self.anomalies[:ANOMALIES_SHOWN]:
            typer.echo(f"{anomaly.name}: {anomaly.what}")
        if len(self.anomalies) > ANOMALIES_SHOWN:
            typer.echo(f"and {len(self.anomalies) - ANOMALIES_SHOWN} more")
        outcome = "all there, once, in order" if not self.anomalies else f"{len(self.anomalies)} anomalies"
        typer.echo(
            f"{self.rounds} rounds: {self.acknowledged} acknowledged, {self.found} read, {outcome}; "
            f"slowest start {self.slowest_start_s:.2f} s"
        )
        if self.anomalies:
            raise typer.Exit(1)


def run(
    broker: BrokerProcess,
    crash: Callable[[], None],
    rounds: int,
    rng: random.Random,
    *,
    partitions: int = 4,
    producers: int = 3,
    told: Callable[[int], None] = lambda _round: None,
) -> RoundVerdict:
    """Run the broker through `rounds` crashes. `crash` ends its process; `told` is called after each restart.

    Raises BrokerEnded where the broker does not come back.
    """
    slowest_start_s = broker.start()
    load = ProducerLoad(broker.address, TOPIC, partitions, producers, rng)
    load.create_topic()
    anomalies: list[BrokenPromise] = []
    for number in range(rounds):
        if not load.run_until_served(SERVED_S):
            anomalies.append(
                BrokenPromise("unavailable", f"round {number + 1}: nothing acknowledged for {SERVED_S:.0f} s")
            )
        load.run_for(rng.uniform(*LOAD_S))
        crash()
        slowest_start_s = max(slowest_start_s, broker.start())
        told(number + 1)
    if not load.settle():
        anomalies.append(BrokenPromise("unanswered", "some sends were never answered"))
    found = load.read_back()
    anomalies += load.ack_log.compare(found)
    return RoundVerdict(
        rounds, len(load.ack_log.acknowledged), sum(map(len, found.values())), slowest_start_s, anomalies
    )
