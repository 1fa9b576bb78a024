"""Faults on a running local cluster during a workload: leaders killed, brokers restarted, followers paused."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker_fixture import wait_until
from confluent_kafka.admin import AdminClient
from local_cluster import LocalCluster

KILLS = int(os.environ.get("CORDWOOD_KILLS", "2"))
"""The number of faults in a run; CORDWOOD_KILLS=20 is the full check of the promise."""

RECOVERED_S = 60.0


class BrokerFaults:
    """A topic on a running cluster, and the faults of its brokers."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.count = 0

    def kill_a_leader(self) -> None:
        """Send SIGKILL to the first partition's leader, restart it, and wait until all replicas are in sync."""
        victim = self.leader()
        self.cluster.kill(victim)
        wait_until(lambda: self.leader() != victim, RECOVERED_S, "another leader")
        self.cluster.up()
        self._heal()

    def restart_a_broker(self) -> None:
        """Send SIGTERM to the next broker in turn, restart it, and wait until all replicas are in sync."""
        victim = self.count % self.cluster.count + 1
        os.kill(self.cluster.broker(victim)["pid"], signal.SIGTERM)
        wait_until(lambda: not self.cluster.is_running(victim), RECOVERED_S, f"the end of broker {victim}")
        self.cluster.up()
        self._heal()

    def leader(self, partition: int = 0) -> int:
        """Return the leader as the cluster reports it; -1 if there is none."""
        return self._partitions()[partition].leader

    @contextmanager
    def followers_held_still(self) -> Iterator[None]:
        """Send SIGSTOP to all brokers except the first partition's leader, and SIGCONT at the end."""
        leader = self.leader()
        held = [broker["pid"] for broker in self.cluster.brokers if broker["id"] != leader]
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in held:
                os.kill(pid, signal.SIGCONT)

    @contextmanager
    def going_on(self, fault: Callable[[], None], times: int = KILLS) -> Iterator[Callable[[], bool]]:
        """Repeat a fault in a thread while the body runs. Yield a function that returns whether the faults are over."""
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(times):
                    fault()
                    self.count += 1
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield lambda: not thread.is_alive()
        finally:
            thread.join()
        assert not failures, failures
        assert self.count == times

    def _heal(self) -> None:
        everybody = {broker["id"] for broker in self.cluster.brokers}
        wait_until(
            lambda: all({*partition.isrs} == everybody for partition in self._partitions().values()),
            RECOVERED_S,
            "all replicas in sync",
        )

    def _partitions(self):  # type: ignore[no-untyped-def]
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "socket.timeout.ms": 3000})
        return admin.list_topics(self.topic, 15).topics[self.topic].partitions
