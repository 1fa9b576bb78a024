"""Rounds of faults under load on a whole cluster, and their verdict over all clients and replicas."""

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import typer
from confluent_kafka import KafkaException

from cordwood.chaos.live import polls, replica_logs
from cordwood.chaos.live.ack_log import NO_RESPONSE
from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.clients import Clients, Workload, by_partition
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.process import BrokerEnded, StillRuns
from cordwood.chaos.live.report import RoundsReport

SERVED_S = 30.0
IN_SYNC_S = 60.0
QUIET_S = (0.2, 1.0)
"""Seconds of undisturbed load between two faults, minimum and maximum."""


class ClusterRounds:
    """One cluster, its clients, and the results so far. A fault is a function of this object.

    A fault does its harm, adds its measurements to `report`, and undoes the harm.
    """

    def __init__(self, name: str, cluster: LocalCluster, place: Path, workload: Workload, seed: int) -> None:
        self.cluster, self.workload, self.rng = cluster, workload, random.Random(seed)
        self.report = RoundsReport(name)
        self.clients = Clients(cluster.bootstrap, workload, place / "clients")

    def run(self, rounds: int, fault: Callable[["ClusterRounds"], None]) -> RoundsReport:
        """Start everything, run the fault `rounds` times, and return the results.

        All processes have ended when this returns or raises.
        """
        try:
            self._run(rounds, fault)
        except (BrokerEnded, StillRuns, NotInTime, TimeoutError, KafkaException) as failure:
            self.report.accuse("unavailable", str(failure))
        finally:
            self.clients.kill()
            self.cluster.kill()
        return self.report

    def served_again(self, what: str, since: float, partitions: Iterable[int] | None = None) -> None:
        """Wait until each partition acknowledges a record sent after `since`. Add the slowest to `report`."""
        wanted = set(range(self.workload.partitions) if partitions is None else partitions)
        waited = self.clients.served_after(since, wanted, SERVED_S)
        if waited.keys() < wanted:
            self.report.accuse("unavailable", f"{what}: partitions {sorted(wanted - waited.keys())} accept no records")
        elif waited:
            self.report.took(what, max(waited.values()))

    def any_leader(self) -> int:
        """Return the broker that leads a random partition of the topic."""
        return self.cluster.leader_of(self.workload.topic, self.rng.randrange(self.workload.partitions))

    def wait_in_sync(self) -> None:
        """Wait until all replicas are in sync, and add the time to `report`. Raises NotInTime."""
        began = time.monotonic()
        self.cluster.wait_in_sync(IN_SYNC_S)
        self.report.took("in_sync_again", time.monotonic() - began)

    def _run(self, rounds: int, fault: Callable[["ClusterRounds"], None]) -> None:
        self.cluster.start()
        self.cluster.create_topic(self.workload.topic, self.workload.partitions, self.workload.topic_configs)
        self.clients.start()
        for number in range(rounds):
            self.served_again("served_before", time.monotonic())
            time.sleep(self.rng.uniform(*QUIET_S))
            fault(self)
            self.cluster.check_alive()
            typer.echo(f"round {number + 1} of {rounds}: {self.report.end_round()}", err=True)
        self._judge()

    def _judge(self) -> None:
        """Compare all acknowledgements and polls with the log, and the replicas with each other."""
        report = self.report
        self.wait_in_sync()
        report.anomalies += self.clients.stop_sending()
        whole = self.clients.read_all()
        found = by_partition(whole, self.workload.partitions)
        ack_log = self.clients.ack_log()
        report.acknowledged, report.read = len(ack_log.acknowledged), sum(map(len, found.values()))
        report.figures["acknowledged_without_offset"] = sum(at == NO_RESPONSE for at in ack_log.acknowledged.values())
        report.anomalies += ack_log.compare(found)
        reads = self.clients.stop_reading(found)
        report.anomalies += (polls.compare_group if self.workload.is_group else polls.compare)(reads, found)
        report.anomalies += polls.compare(whole, found)
        self.cluster.wait_in_sync(IN_SYNC_S)
        self.cluster.stop()
        report.anomalies += replica_logs.divergences(self.cluster.data)
        report.anomalies += replica_logs.damage(self.cluster.data)
