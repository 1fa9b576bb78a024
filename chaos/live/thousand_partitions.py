"""A thousand partitions with three replicas: `python -m cordwood.chaos.live.thousand_partitions`.

Measures the time to create them, the time that a killed broker's share of them has no leader, and the cost of an idle
broker.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cordwood.chaos.live.broker_views import BrokerUnreachable, partitions_seen_by
from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.options import Keep, Rounds, workplace
from cordwood.chaos.live.process import BrokerEnded, wait_for
from cordwood.chaos.live.report import RoundsReport

app = typer.Typer(pretty_exceptions_enable=False)

TOPIC = "thousand"
FAILOVER_S = 60.0
CREATED, WRITTEN, LED, PRODUCED = "created", "all_written_to", "all_led_again", "all_take_produce_again"
MB = 10**6


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
    report = RoundsReport("thousand_partitions")
    with workplace(keep) as place:
        cluster = LocalCluster(place)
        try:
            cluster.start()
            create(cluster, report, partitions)
            _watch(cluster, report, idle_s)
            for number in range(rounds):
                fail_over(cluster, report, cluster.ids[number % len(cluster.ids)])
                typer.echo(f"round {number + 1} of {rounds}: {report.end_round()}", err=True)
        except (BrokerEnded, NotInTime, KafkaException) as failure:
            report.accuse("unavailable", str(failure))
        finally:
            cluster.kill()
    report.limit(CREATED, 1, created_s)
    report.limit(LED, 1, failover_s)
    for figure, limit in (("idle_percent_max", idle_percent), ("memory_mb_max", memory_mb)):
        if report.figures.get(figure, 0) > limit:
            report.accuse("costly", f"{figure} is {report.figures[figure]}, where {limit:g} are allowed")
    report.tell()


def create(cluster: LocalCluster, report: RoundsReport, partitions: int) -> None:
    """Create the topic. Report when every broker saw every partition in sync, and when each had taken a record."""
    began = time.monotonic()
    cluster.create_topic(TOPIC, partitions)
    report.took(CREATED, time.monotonic() - began)
    _produce_to(cluster.bootstrap, range(partitions))
    report.took(WRITTEN, time.monotonic() - began)


def fail_over(cluster: LocalCluster, report: RoundsReport, victim: int) -> None:
    """Kill a broker. Report when all partitions that it led have other leaders, and when all of them take records."""
    cluster.elect_preferred(TOPIC)
    led = cluster.led_by(victim, TOPIC)
    report.figures["led_by_the_killed"] = len(led)
    survivors = [broker.address for id_, broker in cluster.brokers.items() if id_ != victim]
    killed_at = time.monotonic()
    cluster.brokers[victim].kill()
    if not wait_for(lambda: _are_led(survivors, led, victim), FAILOVER_S):
        report.accuse("unavailable", f"not all of {len(led)} partitions were led again within {FAILOVER_S:.0f} s")
        return
    report.took(LED, time.monotonic() - killed_at)
    _produce_to(",".join(survivors), led)
    report.took(PRODUCED, time.monotonic() - killed_at)
    began = time.monotonic()
    cluster.start([victim])
    cluster.wait_in_sync()
    report.took("in_sync_again", time.monotonic() - began)


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

    def told(error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            missing.discard(partition)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    for partition in partitions:
        producer.produce(TOPIC, b"again", partition=partition, on_delivery=told)
    producer.flush(FAILOVER_S)
    if missing:
        raise NotInTime(f"{len(missing)} partitions took no record within {FAILOVER_S:.0f} s")


def _watch(cluster: LocalCluster, report: RoundsReport, seconds: float) -> None:
    """Report the processor time and memory of each broker without load."""
    before = {id_: _cpu_s(broker.pid) for id_, broker in cluster.brokers.items()}
    time.sleep(seconds)
    busy = {id_: (_cpu_s(broker.pid) - before[id_]) / seconds * 100 for id_, broker in cluster.brokers.items()}
    memory = {id_: _memory_bytes(broker.pid) / MB for id_, broker in cluster.brokers.items()}
    for id_ in cluster.ids:
        report.figures[f"idle_percent_{id_}"] = round(busy[id_], 2)
        report.figures[f"memory_mb_{id_}"] = round(memory[id_], 1)
    report.figures["idle_percent_max"] = round(max(busy.values()), 2)
    report.figures["memory_mb_max"] = round(max(memory.values()), 1)


def _cpu_s(pid: int) -> float:
    """Return the seconds of processor time of a process, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


if __name__ == "__main__":
    app()
