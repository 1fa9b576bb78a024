"""Failover: the longest time without an acknowledgement while a partition's leader is killed under load."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient

from cordwood.bench.generator import Generator, LoadFailed
from cordwood.bench.lines import LineOutcome, LoadLine
from cordwood.bench.systems import Running

KILL_AFTER_S = 2.0
PARTITION = 0
"""The partition that the generator writes to."""


def run(line: LoadLine, running: Running, generator: Generator) -> LineOutcome:
    """Kill the leader's process during the load.

    Raises LoadFailed where a record was never acknowledged, or the load ended before the leader was killed.
    """
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(_kill_leader, line.topic, running)
        outcome = generator.run(line, running.bootstrap, running.pids)
        is_too_late = not killed.done()
        killed.result()
    if is_too_late:
        raise LoadFailed(f"{line.name}: the load ended before the leader was killed.")
    return outcome


def _kill_leader(topic: str, running: Running) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    time.sleep(KILL_AFTER_S)
    leader = admin.list_topics(topic, 10).topics[topic].partitions[PARTITION].leader
    os.kill(running.pids[leader - 1], signal.SIGKILL)
