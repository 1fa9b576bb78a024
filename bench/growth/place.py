"""Brokers and their data for scaling measurements, and their cost in processor time."""

import contextlib
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.bench.growth.wire import BlockingClient, FetchFrame, OffsetsFrame, ProduceFrame, batch_of
from cordwood.bench.machine import cpu_seconds, largest_resident_mb
from cordwood.chaos.live.process import BrokerProcess, wait_for

TOPIC = "growth"
RECORD_BYTES = 100
REQUESTS = 2000
ROUNDS = 5
CREATE_S = 60.0
IN_FLIGHT = 500
REST_S, REST_PERCENT, REST_MAX_S = 2.0, 10.0, 300.0
# The imports fall into no measurement of an idle broker.
SETTINGS = {"controlled.shutdown.max.wait.ms": "1000", "imports.delay.ms": "0"}


class NotServed(Exception):
    """A broker does not serve all partitions of a topic within CREATE_S."""


@dataclass(frozen=True, slots=True)
class BenchPlace:
    """A directory for the brokers' data, and the share of the work to do."""

    directory: Path
    scale: float
    say: Callable[[str], None]

    def share(self, count: int, least: int = 1) -> int:
        """Return the scaled share of `count`, at least `least`."""
        return max(least, round(count * self.scale))

    def seconds(self, seconds: float) -> float:
        """Return the scaled share of `seconds`, at least 1."""
        return max(1.0, seconds * self.scale)

    @contextlib.contextmanager
    def broker(self, name: str, settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
        """Run one broker on an empty directory, which is deleted afterwards."""
        home = self.directory / name
        home.mkdir(parents=True)
        try:
            with BrokerProcess(home / "data", {**SETTINGS, **(settings or {})}) as broker:
                yield broker
        finally:
            shutil.rmtree(home, ignore_errors=True)


def allow_many_files() -> None:
    """Raise the limit of file descriptors to the hard limit, for a client of thousands of connections."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def create_topic(bootstrap: str, partitions: int, replicas: int = 1) -> None:
    """Create the topic. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, partitions, replicas)], request_timeout=CREATE_S)[TOPIC].result(CREATE_S)


def create_topic_on(address: str, partitions: int) -> None:
    """Create the topic on the only broker of a cluster, and wait until it leads all partitions.

    CreateTopics is answered before: the broker opens a few partitions at a time. Raises KafkaException, NotServed,
    OSError.
    """
    create_topic(address, partitions)
    offsets = OffsetsFrame({TOPIC: range(partitions)})
    with BlockingClient(address) as client:
        if not wait_for(lambda: offsets.refused_in(client.exchange(offsets.frame)) == 0, CREATE_S):
            raise NotServed(f"not all of {partitions:,} partitions are served {CREATE_S:.0f} s after their creation")


def spread(address: str, partitions: int, records: int) -> None:
    """Produce records round-robin, one to a partition, with many requests in flight. Raises RequestFailed, OSError."""
    batch = batch_of(RECORD_BYTES)
    waiting: list[ProduceFrame] = []
    with BlockingClient(address) as client:
        for number in range(records):
            if len(waiting) >= IN_FLIGHT:
                waiting.pop(0).offset_in(client.receive_frame())
            waiting.append(ProduceFrame(TOPIC, number % partitions, batch))
            client.socket.sendall(waiting[-1].frame)
        for request in waiting:
            request.offset_in(client.receive_frame())


def cpu_us(pids: Sequence[int], count: int, work: Callable[[], None]) -> float:
    """Return the microseconds of the brokers' processor time for each of `count` requests that `work` sends."""
    before = cpu_seconds(pids)
    work()
    return (cpu_seconds(pids) - before) / count * 1e6


def produce_us(address: str, pids: Sequence[int], count: int, value_bytes: int = RECORD_BYTES) -> float:
    """Measure Produce requests to partition 0, one record a request, one request in flight."""
    request = ProduceFrame(TOPIC, 0, batch_of(value_bytes))
    with BlockingClient(address) as client:
        client.produce(request)

        def work() -> None:
            for _ in range(count):
                client.produce(request)

        return cpu_us(pids, count, work)


def fetch_us(address: str, pids: Sequence[int], offsets: Sequence[int], count: int, bytes_max: int = 64 << 10) -> float:
    """Measure Fetch requests of up to `bytes_max` from partition 0, at each of `offsets` in turn."""
    request = FetchFrame(TOPIC, 0, bytes_max=bytes_max)
    with BlockingClient(address) as client:
        request.batches_in(client.exchange(request.at(offsets[0])))

        def work() -> None:
            for number in range(count):
                request.batches_in(client.exchange(request.at(offsets[number % len(offsets)])))

        return cpu_us(pids, count, work)


def end_offset(address: str) -> int:
    """Append a record to partition 0, and return the log end offset after it."""
    with BlockingClient(address) as client:
        return client.produce(ProduceFrame(TOPIC, 0, batch_of(RECORD_BYTES))) + 1


def idle_percent(pids: Sequence[int], seconds: float) -> float:
    """Return the percentage of one core that a broker takes without load, on average over the brokers."""
    before, began = cpu_seconds(pids), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(pids) - before) / (time.perf_counter() - began) / len(pids) * 100


def come_to_rest(pids: Sequence[int]) -> None:
    """Wait until the brokers have finished the work after a start, or after the creation of topics."""
    wait_for(lambda: idle_percent(pids, REST_S) < REST_PERCENT, REST_MAX_S)


def resident_mb(broker: BrokerProcess) -> float:
    return largest_resident_mb([broker.pid])


def start_s(broker: BrokerProcess) -> float:
    """Return the seconds from the start of the process until it has answered a request."""
    began = time.perf_counter()
    broker.start()
    with BlockingClient(broker.address) as client:
        client.hello()
    return time.perf_counter() - began


def median_produce_us(
    address: str, pids: Sequence[int], count: int, value_bytes: int = RECORD_BYTES, rounds: int = ROUNDS
) -> float:
    """Return the median of `rounds` measurements of `produce_us`."""
    return statistics.median(produce_us(address, pids, count, value_bytes) for _ in range(rounds))


def free_bytes(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize
