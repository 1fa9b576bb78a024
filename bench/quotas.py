"""`python -m cordwood.bench.quotas`: the accuracy of quotas, and their effect on the clients beside a throttled one."""

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.produce.v7.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.static.primitive import f64

from cordwood.bench.growth.place import TOPIC, BenchPlace, create_topic
from cordwood.bench.growth.wire import batch_of
from cordwood.chaos.history import ACKS_ALL
from cordwood.chaos.program import run_program
from cordwood.chaos.results import begun
from cordwood.client.blocking import BlockingConnection, connect

CONNECTIONS = (1, 10, 100)
SECONDS = 30.0
RATE = 2_000_000
BATCH_BYTES = 16 << 10
SMALL_BATCH_BYTES, SMALL_BATCH_PAUSE_S = 100, 0.01
"""What the client without a quota produces, and how long it pauses then: it takes little of the broker itself."""
FETCH_BYTES = 1 << 20
FILLED_BATCHES = 200
DEVIATION_MAX = 0.10
TIMEOUT_S = 120.0
LIMITED, OTHER = "limited", "other"
WAIT = timedelta(milliseconds=500)
SESSION_MS = 6_000
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class QuotaMeasurement:
    """One run: the rate that clients had, and what others noticed."""

    quota: str
    connections: int
    limit_per_second: int
    measured_per_second: int
    deviation: float
    other_p99_ms_before: float
    other_p99_ms: float
    rebalances: int
    """Of a group member whose client id is throttled."""


def main(
    seconds: Annotated[float, typer.Option(min=1, help="The duration of each measurement.")] = SECONDS,
    rate: Annotated[int, typer.Option(min=1, help="The quota in bytes per second.")] = RATE,
    recorded: Annotated[Path | None, typer.Option("--record", metavar="FILE", help="Write a result file.")] = None,
) -> None:
    """Measure produce and fetch quotas with 1, 10 and 100 connections. Exits with 1 where one is missed by 10%."""
    about = {"seconds": seconds, "rate": rate}
    record = begun(recorded, "quotas", about)
    found: list[QuotaMeasurement] = []
    with (
        tempfile.TemporaryDirectory(prefix="quotas-") as directory,
        # The threads of the limited clients would delay another thread of their process.
        ProcessPoolExecutor(1, get_context("spawn")) as process,
        BenchPlace(Path(directory), 1.0, typer.echo).broker("quotas") as broker,
    ):
        create_topic(broker.address, 1)
        run = QuotaRun(broker.address, rate, seconds, process)
        run.fill()
        for quota, work in (("producer_byte_rate", run.produce), ("consumer_byte_rate", run.fetch)):
            for connections in CONNECTIONS:
                found.append(run.measure(quota, connections, work))
                typer.echo(_line(found[-1]))
    if record is not None:
        for measured in found:
            record.add(asdict(measured))
        record.end()
    is_kept = all(abs(measured.deviation) <= DEVIATION_MAX and not measured.rebalances for measured in found)
    sys.exit(0 if is_kept else 1)


class QuotaRun:
    """Clients of one broker: many with the limited client id, and one with another, in a process of its own."""

    def __init__(self, address: str, rate: int, seconds: float, process: Executor) -> None:
        self._address, self._rate, self._seconds, self._process = address, rate, seconds, process
        self._produced = _produce_request(BATCH_BYTES)
        self._fetched = _fetch_request()

    def fill(self) -> None:
        """Produce what consumers fetch."""
        with _connect(self._address, OTHER) as client:
            for _ in range(FILLED_BATCHES):
                client.ask(self._produced)

    def produce(self, client: BlockingConnection) -> int:
        client.ask(self._produced)
        return BATCH_BYTES

    def fetch(self, client: BlockingConnection) -> int:
        response = client.ask(self._fetched)
        (records,) = [row.records or b"" for topic in response.responses for row in topic.partitions] or [b""]
        return len(records)

    def measure(self, quota: str, connections: int, work: Callable[[BlockingConnection], int]) -> QuotaMeasurement:
        """Use the quota with so many connections, as fast as they may."""
        before_ms = self._process.submit(_p99_ms, self._address, min(self._seconds, 5.0)).result()
        self._set(quota, float(self._rate))
        with ExitStack() as stack, GroupMember(self._address) as member:
            clients = [stack.enter_context(_connect(self._address, LIMITED)) for _ in range(connections)]
            time.sleep(1.5)
            began = time.perf_counter()
            with ThreadPoolExecutor(connections) as threads:
                other = self._process.submit(_p99_ms, self._address, self._seconds)
                done = list(threads.map(lambda client: self._use(client, work, began + self._seconds), clients))
                during_ms = other.result()
        self._set(quota, None)
        measured = sum(done) / self._seconds
        return QuotaMeasurement(
            quota,
            connections,
            self._rate,
            round(measured),
            round(measured / self._rate - 1, 4),
            round(before_ms, 2),
            round(during_ms, 2),
            member.rebalances,
        )

    def _use(self, client: BlockingConnection, work: Callable[[BlockingConnection], int], end: float) -> int:
        """Send one request after the other. Return the bytes of those that were answered in time."""
        total = 0
        while time.perf_counter() < end:
            size = work(client)
            if time.perf_counter() < end:
                total += size
        return total

    def _set(self, quota: str, value: float | None) -> None:
        entity = (EntityData(entity_type="client-id", entity_name=LIMITED),)
        change = OpData(key=quota, value=f64(value or 0.0), remove=value is None)
        request = AlterClientQuotasRequest(entries=(EntryData(entity=entity, ops=(change,)),), validate_only=False)
        with _connect(self._address, OTHER) as client:
            (row,) = client.ask(request).entries
            assert not row.error_code, row


class GroupMember:
    """A consumer with the limited client id. It counts the rebalances after its first assignment."""

    def __init__(self, address: str) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "client.id": LIMITED,
            "group.id": "limited",
            "session.timeout.ms": SESSION_MS,
            "auto.offset.reset": "latest",
        }
        self._consumer = Consumer(settings)
        self._is_ending = threading.Event()
        self._is_assigned = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._assignments = 0

    @property
    def rebalances(self) -> int:
        return max(0, self._assignments - 1)

    def __enter__(self) -> "GroupMember":
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._thread.start()
        assert self._is_assigned.wait(TIMEOUT_S), "the group member was not assigned its partition"
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()
        self._consumer.close()

    def _assigned(self, _consumer: Any, _partitions: Any) -> None:
        self._assignments += 1
        self._is_assigned.set()

    def _poll(self) -> None:
        while not self._is_ending.is_set():
            self._consumer.poll(POLL_S)


def _p99_ms(address: str, seconds: float) -> float:
    """Produce small batches with a client that has no quota, and return the 99th percentile of the latency."""
    taken, small = [], _produce_request(SMALL_BATCH_BYTES)
    with _connect(address, OTHER) as client:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            client.ask(small)
            taken.append((time.perf_counter() - began) * 1000)
            time.sleep(SMALL_BATCH_PAUSE_S)
    return statistics.quantiles(taken, n=100)[98]


def _connect(address: str, client_id: str) -> BlockingConnection:
    return connect(address, TIMEOUT_S, client_id)


def _produce_request(size: int) -> ProduceRequest:
    data = (TopicProduceData(name=TOPIC, partition_data=(PartitionProduceData(index=0, records=batch_of(size)),)),)
    wait = timedelta(seconds=TIMEOUT_S)
    return ProduceRequest(transactional_id=None, acks=ACKS_ALL, timeout=wait, topic_data=data)


def _fetch_request() -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    return FetchRequest(
        replica_id=-1,
        max_wait=WAIT,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),),
        forgotten_topics_data=(),
        rack_id="",
    )


def _line(measured: QuotaMeasurement) -> str:
    return (
        f"{measured.quota}, {measured.connections:>3} connections: {measured.measured_per_second:>11,} of"
        f" {measured.limit_per_second:,} B/s ({measured.deviation:+.1%}); another client's p99"
        f" {measured.other_p99_ms:.2f} ms ({measured.other_p99_ms_before:.2f} ms before); rebalances:"
        f" {measured.rebalances}"
    )


if __name__ == "__main__":
    run_program(main)
