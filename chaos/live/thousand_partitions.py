"""A thousand partitions with three replicas: `python -m cordwood.chaos.live.thousand_partitions`.

Measures the time to create them, the time that a killed broker's share of them has no leader, and the cost of an idle
broker.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live.broker_views import BrokerUnreachable, partitions_seen_by
from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.campaign import unavailable
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.figures import Figures, ValueLimit
from cordwood.chaos.live.flood.watch import resident_mb
from cordwood.chaos.live.options import Keep, Rounds, workplace
from cordwood.chaos.live.process import BrokerEnded, wait_for

app = typer.Typer(pretty_exceptions_enable=False)

TOPIC = "thousand"
FAILOVER_S = 60.0
CREATED_S, WRITTEN_S = "created_s", "all_written_to_s"
LED_S, PRODUCED_S, IN_SYNC_S = "all_led_again_s", "all_take_produce_again_s", "in_sync_again_s"
IDLE_PERCENT, MEMORY_MB = "idle_percent", "memory_mb"


@app.command()
def main(
    rounds: Rounds = 3,
    partitions: Annotated[int, typer.Option(min=3)] = 1000,
    idle_s: Annotated[float, typer.Option(min=1, help="How long the idle broker is measured.")] = 20.0,
    created_s: Annotated[float, typer.Option(help="The time limit for their creation.")] = 2.0,
    failover_s: Annotated[float, typer.Option(help="For others to lead a killed broker's share.")] = 2.5,
    idle_percent: Annotated[float, typer.Option(help="Of one core, for an idle broker.")] = 5.0,
    memory_mb: Annotated[float, typer.Option(help="For a broker.")] = 120.0,
    keep: Keep = None,
) -> None:
    """Create the partitions, measure the idle brokers, and kill one broker after the other.

    Exits with 1 if a limit is exceeded.
    """
    figures, anomalies = Figures(), list[Anomaly]()
    with workplace(keep) as place:
        cluster = LocalCluster(place)
        try:
            cluster.start()
            create(cluster, figures, partitions)
            _watch(cluster, figures, idle_s)
            for number in range(rounds):
                fail_over(cluster, figures, cluster.ids[number % len(cluster.ids)])
                typer.echo(f"round {number + 1} of {rounds}: {figures.recent()}", err=True)
        except (BrokerEnded, NotInTime, KafkaException) as failure:
            anomalies.append(unavailable("in the rounds", failure))
        finally:
            cluster.kill()
    limits = (
        ValueLimit(CREATED_S, created_s),
        ValueLimit(LED_S, failover_s),
        ValueLimit(IDLE_PERCENT, idle_percent),
        ValueLimit(MEMORY_MB, memory_mb),
    )
    anomalies += figures.exceeded(limits)
    for line in (*(f"{anomaly.kind}: {anomaly.sentence}" for anomaly in anomalies), *figures.lines(limits)):
        typer.echo(line)
    typer.echo(json.dumps({"anomalies": len(anomalies), "figures": figures.summary()}))
    if anomalies:
        raise typer.Exit(1)


def create(cluster: LocalCluster, figures: Figures, partitions: int) -> None:
    """Create the topic. Measure when every broker saw every partition in sync, and when each had taken a record."""
    began = time.monotonic()
    cluster.create_topic(TOPIC, partitions)
    figures.add(CREATED_S, time.monotonic() - began)
    _produce_to(cluster.bootstrap, range(partitions))
    figures.add(WRITTEN_S, time.monotonic() - began)


def fail_over(cluster: LocalCluster, figures: Figures, victim: int) -> None:
    """Kill a broker. Measure when all partitions that it led have other leaders, and when all of them take records."""
    cluster.elect_preferred(TOPIC)
    led = cluster.led_by(victim, TOPIC)
    figures.add("led_by_the_killed", len(led))
    survivors = [broker.address for id_, broker in cluster.brokers.items() if id_ != victim]
    killed_at = time.monotonic()
    cluster.brokers[victim].kill()
    if not wait_for(lambda: _are_led(survivors, led, victim), FAILOVER_S):
        raise NotInTime(f"not all of {len(led)} partitions were led again within {FAILOVER_S:.0f} s")
    figures.add(LED_S, time.monotonic() - killed_at)
    _produce_to(",".join(survivors), led)
    figures.add(PRODUCED_S, time.monotonic() - killed_at)
    began = time.monotonic()
    cluster.start([victim])
    cluster.wait_in_sync()
    figures.add(IN_SYNC_S, time.monotonic() - began)


def _are_led(survivors: Iterable[str], led: set[int], victim: int) -> bool:
    """Return whether each survivor sees a leader other than the victim for each of the partitions."""
    for address in survivors:
        try:
            views = partitions_seen_by(address)
        except BrokerUnreachable:
            return False
        if any(view.leader in (-1, victim) for view in views if view.topic == TOPIC and view.index in led):
            return False
    return True


def _produce_to(bootstrap: str, partitions: Iterable[int]) -> None:
    """Produce one acknowledged record to each partition. Raises NotInTime."""
    missing = set(partitions)

    def delivered(error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            missing.discard(partition)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    for partition in partitions:
        producer.produce(TOPIC, b"again", partition=partition, on_delivery=delivered)
    producer.flush(FAILOVER_S)
    if missing:
        raise NotInTime(f"{len(missing)} partitions took no record within {FAILOVER_S:.0f} s")


def _watch(cluster: LocalCluster, figures: Figures, seconds: float) -> None:
    """Measure the processor time and memory of each broker without load."""
    before = {id_: _cpu_s(broker.pid) for id_, broker in cluster.brokers.items()}
    time.sleep(seconds)
    for id_, broker in cluster.brokers.items():
        figures.add(IDLE_PERCENT, (_cpu_s(broker.pid) - before[id_]) / seconds * 100)
        figures.add(MEMORY_MB, resident_mb(broker.pid))


def _cpu_s(pid: int) -> float:
    """Return the seconds of processor time of a process, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    app()
