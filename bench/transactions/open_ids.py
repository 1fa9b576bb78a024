"""Open transactional ids: the memory that each takes of the brokers, and the failover of their coordinators."""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cordwood.bench.machine import resident_mb
from cordwood.bench.systems import Running, System
from cordwood.bench.transactions import throughput
from cordwood.chaos.history import ACKS_ALL
from cordwood.client.blocking import BlockingConnection, connect
from cordwood.cluster.coordination.topic import partition_of
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode

TOPIC, STATES, PARTITIONS = "open", "__transaction_state", 6
TRANSACTION = 1
"""The kind of a coordinator's key."""
CONNECTIONS = 16
TIMEOUT_S, LIMIT_S, POLL_S = 60.0, 60.0, 0.01
TRANSACTION_TIMEOUT = timedelta(minutes=15)
SETTLED_S = 3.0
"""Time in which checkpoints of what was written show in the memory of the brokers."""
RETRIED = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
}
MEMORY_MAX_MB, FAILOVER_MAX_S = 60.0, 2.0


@dataclass(slots=True)
class OpenIdFigures:
    """Many open transactional ids, each with one record in one partition."""

    ids: int
    brokers: int
    opened_per_second: float = 0.0
    mb_per_100_000: list[float] = field(default_factory=list)
    """Resident memory of each broker for 100,000 ids, from the difference that the second half of `ids` made: the first
    half fills caches."""
    lost_ids: int = 0
    """Ids whose coordinator was killed."""
    failover_s: float = 0.0
    """From the kill until every lost id was described by another coordinator as before."""
    load: float = 0.0

    def sentence(self) -> str:
        each = ", ".join(f"{mb:.0f}" for mb in self.mb_per_100_000)
        failover = f"; {self.lost_ids:,} came back in {self.failover_s:.2f} s" if self.lost_ids else ""
        return f"{self.ids:,} open ids on {self.brokers} brokers: {each} MB more each for 100,000{failover}"

    def missed(self) -> list[str]:
        found = []
        if max(self.mb_per_100_000) > MEMORY_MAX_MB:
            found.append(f"memory: {max(self.mb_per_100_000):.0f} MB for 100,000 ids, at most {MEMORY_MAX_MB:.0f} MB")
        if self.failover_s > FAILOVER_MAX_S:
            found.append(f"coordinator failover: {self.failover_s:.2f} s, at most {FAILOVER_MAX_S:g} s")
        return found


def measure(system: System, ids: int, say: Callable[[str], None]) -> OpenIdFigures:
    """Open transactions of that many ids, then kill the coordinator of most of them. Raises OSError, TimeoutError."""
    found = OpenIdFigures(ids, system.brokers)
    names, half = [f"transactional-id-{number:06}" for number in range(ids)], ids // 2
    with throughput.running(system) as running:
        clients = OpenProducers(running)
        clients.open(names[:half])
        before, began = _settled_mb(running), time.monotonic()
        clients.open(names[half:])
        found.opened_per_second = round((ids - half) / (time.monotonic() - began))
        found.mb_per_100_000 = [
            round((late - early) * 100_000 / (ids - half), 1)
            for early, late in zip(before, _settled_mb(running), strict=True)
        ]
        say(found.sentence())
        if system.brokers > 1:
            found.lost_ids, found.failover_s = clients.kill_a_coordinator(names)
    found.load = round(os.getloadavg()[0], 2)
    return found


class OpenProducers:
    """Producers that begin a transaction and do not end it, by version 2 of the protocol."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._addresses = dict(enumerate(running.bootstrap.split(","), 1))
        self._admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        count = len(running.pids)
        created = self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, count)], request_timeout=TIMEOUT_S)
        created[TOPIC].result(TIMEOUT_S)
        with connect(self._addresses[1], TIMEOUT_S) as client:
            # The first request creates the topic of states.
            _until(lambda: not client.ask(_find("any")).coordinators[0].error_code)
        _until(lambda: min(self._leaders(STATES).values(), default=-1) > 0)

    def open(self, names: Sequence[str]) -> None:
        """Open a transaction of each id, with one record."""
        leaders, states = self._leaders(TOPIC), self._leaders(STATES)

        def some(share: Sequence[str]) -> None:
            with _Connections(self._addresses) as to:
                for name in share:
                    partition = random.Random(name).randrange(PARTITIONS)
                    _open(to[states[partition_of(name, len(states))]], to[leaders[partition]], name, partition)

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(some, [names[number::CONNECTIONS] for number in range(CONNECTIONS)]))

    def kill_a_coordinator(self, names: Sequence[str]) -> tuple[int, float]:
        """Kill the broker that coordinates most ids. Return their number, and the seconds until others do."""
        states = self._leaders(STATES)
        lost: defaultdict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for name in names:
            partition = partition_of(name, len(states))
            lost[states[partition]][partition].append(name)
        victim = max(lost, key=lambda broker: sum(map(len, lost[broker].values())))
        count = sum(map(len, lost[victim].values()))
        others = {broker: address for broker, address in self._addresses.items() if broker != victim}
        with _Connections(others) as to:
            # One id of each partition: a coordinator serves all ids of a partition together.
            waiting = {partition: ids[0] for partition, ids in lost[victim].items()}
            clients = [to[broker] for broker in others]
            began = time.monotonic()
            os.kill(self._running.pids[victim - 1], signal.SIGKILL)
            while waiting:
                if time.monotonic() - began > LIMIT_S:
                    raise TimeoutError(f"{len(waiting)} of the coordinators' partitions are not served")
                for client in clients:
                    rows = client.ask(DescribeTransactionsRequest(transactional_ids=tuple(waiting.values())))
                    for row in rows.transaction_states:
                        if not row.error_code and row.transaction_state == "Ongoing":
                            waiting.pop(partition_of(row.transactional_id, len(states)), None)
                time.sleep(POLL_S)
            return count, round(time.monotonic() - began, 3)

    def _leaders(self, topic: str) -> Mapping[int, int]:
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return {} if found is None else {index: each.leader for index, each in found.partitions.items()}


class _Connections(dict[int, BlockingConnection]):
    """A connection to each broker, opened on use and closed together."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        super().__init__()
        self._addresses = addresses

    def __missing__(self, broker: int) -> BlockingConnection:
        self[broker] = connect(self._addresses[broker], TIMEOUT_S)
        return self[broker]

    def __enter__(self) -> "_Connections":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.values():
            connection.close()


def _open(coordinator: BlockingConnection, leader: BlockingConnection, name: str, partition: int) -> None:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout=TRANSACTION_TIMEOUT)
    given = next(answer for answer in _answers(coordinator, request) if answer.error_code not in RETRIED)
    assert not given.error_code, given
    records = encode(
        [Record(0, int(time.time() * 1000), None, b"open")],
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    data = (PartitionProduceData(index=partition, records=records),)
    produce = ProduceRequest(
        transactional_id=name,
        acks=ACKS_ALL,
        timeout=timedelta(seconds=TIMEOUT_S),
        topic_data=(TopicProduceData(name=TOPIC, partition_data=data),),
    )
    for answer in _answers(leader, produce):
        (row,) = (row for topic in answer.responses for row in topic.partition_responses)
        if row.error_code not in RETRIED:
            assert not row.error_code, row
            return


def _answers(client: BlockingConnection, request: object) -> Iterator[Any]:
    """Send the request again and again."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        yield client.ask(request)
        time.sleep(POLL_S)
    raise TimeoutError(f"{type(request).__name__} is refused for {LIMIT_S:.0f} s")


def _find(name: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=(name,))


def _settled_mb(running: Running) -> list[float]:
    time.sleep(SETTLED_S)
    return [resident_mb(pid) for pid in running.pids]


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the brokers are not ready")
        time.sleep(POLL_S)
