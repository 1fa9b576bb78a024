"""A leader is killed while records are written to its partition: how long nobody's record is acknowledged."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient

from cordwood.bench.generator import Generator
from cordwood.bench.lines import Line, Outcome
from cordwood.bench.systems import Running

KILL_AFTER_S = 2.0
PARTITION = 0
"""The one that the generator writes to."""


def run(line: Line, running: Running, generator: Generator) -> Outcome:
    """Kill the leader's process meanwhile. Raises LoadFailed, also where a record was never acknowledged."""
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(_kill_leader, line.topic, running)
        outcome = generator.run(line, running.bootstrap, running.pids)
        killed.result()
    return outcome


def _kill_leader(topic: str, running: Running) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    time.sleep(KILL_AFTER_S)
    leader = admin.list_topics(topic, 10).topics[topic].partitions[PARTITION].leader
    os.kill(running.pids[leader - 1], signal.SIGKILL)
