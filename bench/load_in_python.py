"""The load generator for machines without Go: the same command line and answer as load/, from confluent-kafka."""

import argparse
import json
import multiprocessing
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

WARM_UP_S = 2.0
DUE = struct.Struct(">d")

Acknowledged = Callable[[KafkaError | None, Message], None]


def main() -> None:
    modes: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "topic": create_topic,
        "produce": produce,
        "consume": consume,
        "produce-and-consume": produce_and_consume,
        "latency": latency,
        "one-at-a-time": one_at_a_time,
        "one-in-flight": one_in_flight,
        "transactions": transactions,
        "flushed": flushed,
        "pipelined": pipelined,
        "failover": failover,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--replication", type=int, default=1)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--transaction-records", type=int, default=0)
    parser.add_argument("--read-committed", action="store_true")
    parser.add_argument("--ca", help="the certificate of brokers with TLS")
    work = parser.parse_args()
    json.dump(modes[work.mode](work), sys.stdout)
    sys.stdout.write("\n")


def _brokers(work: argparse.Namespace) -> dict[str, Any]:
    security = {} if work.ca is None else {"security.protocol": "SSL", "ssl.ca.location": work.ca}
    return {"bootstrap.servers": work.bootstrap, **security}


def create_topic(work: argparse.Namespace) -> dict[str, Any]:
    admin = AdminClient(_brokers(work))
    while (error := _refusal(admin, work)) == KafkaError.INVALID_REPLICATION_FACTOR:
        # A broker may answer before the controller counts it among those that take replicas.
        time.sleep(0.05)
    if error not in (KafkaError.NO_ERROR, KafkaError.TOPIC_ALREADY_EXISTS):
        raise SystemExit(f"The topic cannot be created: {KafkaError(error)}")
    while not _is_in_sync(admin, work.topic):
        time.sleep(0.05)
    return _outcome(0, 0, 0.0)


def _refusal(admin: AdminClient, work: argparse.Namespace) -> int:
    try:
        admin.create_topics([NewTopic(work.topic, work.partitions, work.replication)])[work.topic].result(30)
    except KafkaException as refused:
        return int(refused.args[0].code())
    return KafkaError.NO_ERROR


def _is_in_sync(admin: AdminClient, topic: str) -> bool:
    partitions = admin.list_topics(topic).topics[topic].partitions.values()
    return all(each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in partitions)


def produce(work: argparse.Namespace) -> dict[str, Any]:
    """Produce from one process per producer: threads would share one interpreter's lock."""
    begin = time.perf_counter()
    share = work.records // work.producers
    with multiprocessing.get_context("spawn").Pool(work.producers) as pool:
        failed = sum(pool.starmap(_produce_share, [(work, share)] * work.producers))
    return _outcome(share * work.producers, failed, time.perf_counter() - begin)


def _produce_share(work: argparse.Namespace, share: int) -> int:
    failed = 0

    def acknowledged(error: KafkaError | None, _message: Message) -> None:
        nonlocal failed
        failed += error is not None

    if work.transaction_records:
        producer = _transactional(work)
        for begin in range(0, share, work.transaction_records):
            _commit(producer, work, min(work.transaction_records, share - begin), acknowledged)
        return failed
    producer = _plain(work)
    _produce_all(producer, work, share, acknowledged)
    return failed + producer.flush(120)


def _throughput(work: argparse.Namespace) -> dict[str, Any]:
    return {
        **_brokers(work),
        "linger.ms": 5,
        "batch.size": 1 << 20,
        "queue.buffering.max.messages": 200_000,
        "delivery.report.only.error": True,
    }


def _produce_all(producer: Producer, work: argparse.Namespace, count: int, acknowledged: Acknowledged) -> None:
    value = b"abcdefghijklmnopqrstuvwxyz" * (work.record_bytes // 26 + 1)
    value = value[: work.record_bytes]
    for _ in range(count):
        while True:
            try:
                producer.produce(work.topic, value, on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(0.01)


def _transactional(work: argparse.Namespace) -> Producer:
    """Return a producer with a transactional id of its own."""
    producer = Producer(_throughput(work) | {"transactional.id": f"bench-{uuid.uuid4()}"})
    producer.init_transactions(30)
    return producer


def _commit(producer: Producer, work: argparse.Namespace, count: int, acknowledged: Acknowledged) -> None:
    """Write that many records in a transaction and commit it."""
    producer.begin_transaction()
    _produce_all(producer, work, count, acknowledged)
    producer.commit_transaction(30)


def _flush(producer: Producer, work: argparse.Namespace, count: int, acknowledged: Acknowledged) -> None:
    """Write that many records and wait until all of them are acknowledged."""
    _produce_all(producer, work, count, acknowledged)
    producer.flush(30)


def _plain(work: argparse.Namespace) -> Producer:
    return Producer(_throughput(work) | {"acks": work.acks, "enable.idempotence": work.acks == "all"})


def transactions(work: argparse.Namespace) -> dict[str, Any]:
    """Commit one transaction after the other, and count them."""
    return _in_parts(work, _transactional, _commit)


def flushed(work: argparse.Namespace) -> dict[str, Any]:
    """Do the same without transactions, and wait for the acknowledgements of each part instead."""
    return _in_parts(work, _plain, _flush)


def pipelined(work: argparse.Namespace) -> dict[str, Any]:
    """Do the same without any wait between the parts."""
    return _in_parts(work, _plain, _produce_all)


def _in_parts(
    work: argparse.Namespace,
    connected: Callable[[argparse.Namespace], Producer],
    write: Callable[[Producer, argparse.Namespace, int, Acknowledged], None],
) -> dict[str, Any]:
    """Write parts of `transaction_records` records for a time, one after the other from each producer. Count the parts.

    The first part of each producer is not counted: the client connects meanwhile. Threads suffice: librdkafka does the
    work outside of the interpreter's lock.
    """
    failed = 0

    def acknowledged(error: KafkaError | None, _message: Message) -> None:
        nonlocal failed
        failed += error is not None

    producers = [connected(work) for _ in range(work.producers)]
    for producer in producers:
        write(producer, work, work.transaction_records, acknowledged)
        producer.flush(30)
    waits: list[float] = []
    begin = time.perf_counter()

    def work_on(producer: Producer) -> None:
        while (began := time.perf_counter()) < begin + work.seconds:
            write(producer, work, work.transaction_records, acknowledged)
            waits.append(time.perf_counter() - began)
        producer.flush(30)

    with ThreadPoolExecutor(work.producers) as threads:
        for ended in [threads.submit(work_on, producer) for producer in producers]:
            ended.result()
    return _outcome(len(waits), failed, time.perf_counter() - begin) | {"ack_ms": _quantile(waits)}


def consume(work: argparse.Namespace) -> dict[str, Any]:
    """Consume from one thread per consumer, each with its own partitions, until they have read `records` together."""
    begin = time.perf_counter()
    seen = [0] * work.consumers
    threads = [
        threading.Thread(target=_read, args=(work, _reader(work, OFFSET_BEGINNING, number), seen, number))
        for number in range(work.consumers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _outcome(sum(seen), 0, time.perf_counter() - begin)


def _read(work: argparse.Namespace, consumer: Consumer, seen: list[int], number: int) -> None:
    while sum(seen) < work.records:
        seen[number] += sum(message.error() is None for message in consumer.consume(10_000, 0.2))
    consumer.close()


def produce_and_consume(work: argparse.Namespace) -> dict[str, Any]:
    """Produce and consume together, until the consumer has every record that the producer wrote meanwhile."""
    seen = [0]
    consumer = _reader(work, OFFSET_END)
    begin = time.perf_counter()
    thread = threading.Thread(target=_read, args=(work, consumer, seen, 0))
    thread.start()
    failed = int(produce(work)["failed"])
    thread.join()
    return _outcome(seen[0], failed, time.perf_counter() - begin)


def latency(work: argparse.Namespace) -> dict[str, Any]:
    """Measure latencies from the time when a record was due, so that a stall is charged for all that it delayed."""
    acks: list[float] = []
    reads: list[float] = []
    failed = 0
    begin = time.time()
    counted = begin + WARM_UP_S
    end = counted + work.seconds

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        nonlocal failed
        due = _due(message)
        failed += error is not None
        if error is None and due >= counted:
            acks.append(time.time() - due)

    def follow() -> None:
        consumer = _reader(work, OFFSET_END)
        while time.time() < end + 1:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and _due(message) >= counted:
                reads.append(time.time() - _due(message))
        consumer.close()

    reader = threading.Thread(target=follow)
    reader.start()
    producer = Producer({**_brokers(work), "enable.idempotence": True, "linger.ms": 0})
    padding = bytes(max(0, work.record_bytes - DUE.size))
    for due in paced(producer, begin, work.rate, end - begin, time.time):
        producer.produce(work.topic, DUE.pack(due) + padding, on_delivery=acknowledged)
    producer.flush(30)
    reader.join()
    return _outcome(len(acks), failed, work.seconds) | {"ack_ms": _quantile(acks), "end_to_end_ms": _quantile(reads)}


def one_at_a_time(work: argparse.Namespace) -> dict[str, Any]:
    """Send each record when the one before has been read."""
    consumer = _reader(work, OFFSET_END)
    producer = Producer({**_brokers(work), "enable.idempotence": True, "linger.ms": 0})
    padding = bytes(max(0, work.record_bytes - DUE.size))
    counted = time.time() + WARM_UP_S
    acks: list[float] = []
    reads: list[float] = []
    while (sent := time.time()) < counted + work.seconds:
        producer.produce(work.topic, DUE.pack(sent) + padding)
        producer.flush(30)
        acknowledged = time.time()
        while (message := consumer.poll(1)) is not None and (message.error() is not None or _due(message) != sent):
            pass
        if sent >= counted:
            if message is None:
                raise SystemExit("A record was acknowledged, and not read within a second.")
            acks.append(acknowledged - sent)
            reads.append(time.time() - sent)
    consumer.close()
    return _outcome(len(reads), 0, work.seconds) | {"ack_ms": _quantile(acks), "end_to_end_ms": _quantile(reads)}


def failover(work: argparse.Namespace) -> dict[str, Any]:
    """Measure the longest gap between acknowledgements, while the benchmark kills the leader of partition 0."""
    acks: list[float] = []
    failed = 0

    def acknowledged(error: KafkaError | None, _message: Message) -> None:
        nonlocal failed
        failed += error is not None
        if error is None:
            acks.append(time.perf_counter())

    producer = Producer(
        {
            **_brokers(work),
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 50,
        }
    )
    begin = time.perf_counter()
    for _ in paced(producer, begin, work.rate, work.seconds, time.perf_counter):
        producer.produce(work.topic, bytes(work.record_bytes), partition=0, on_delivery=acknowledged)
    failed += producer.flush(60)
    gap = max((late - early for early, late in pairwise(acks)), default=0.0)
    return _outcome(len(acks), failed, time.perf_counter() - begin) | {"longest_gap_s": gap}


def paced(producer: Producer, begin: float, rate: int, seconds: float, clock: Callable[[], float]) -> Iterator[float]:
    """Yield the due time of each record by `clock`, at a steady rate; a late record follows immediately.

    Due times are computed from the record's number: a sum would accumulate rounding errors, and sometimes yield one
    record more.
    """
    for number in range(round(rate * seconds)):
        due = begin + number / rate
        producer.poll(0)
        while (early := due - clock()) > 0:
            producer.poll(early)
        yield due


def one_in_flight(work: argparse.Namespace) -> dict[str, Any]:
    begin = time.perf_counter()
    waits: list[float] = []

    def one_connection() -> None:
        producer = Producer({**_brokers(work), "enable.idempotence": True, "linger.ms": 0})
        while time.perf_counter() - begin < work.seconds:
            sent = time.perf_counter()
            producer.produce(work.topic, bytes(work.record_bytes))
            producer.flush(30)
            waits.append(time.perf_counter() - sent)

    threads = [threading.Thread(target=one_connection) for _ in range(work.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _outcome(len(waits), 0, time.perf_counter() - begin) | {"ack_ms": _quantile(waits)}


def _reader(work: argparse.Namespace, offset: int, number: int = 0) -> Consumer:
    """Return the consumer with that number, with its share of the topic's partitions and without a group."""
    consumer = Consumer(
        {
            **_brokers(work),
            "group.id": f"bench-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if work.read_committed else "read_uncommitted",
            "fetch.max.bytes": 50 << 20,
            "max.partition.fetch.bytes": 4 << 20,
            "queued.max.messages.kbytes": 256 << 10,
        }
    )
    partitions = consumer.list_topics(work.topic, 30).topics[work.topic].partitions
    mine = [index for index in partitions if index % work.consumers == number]
    assigned = [TopicPartition(work.topic, index, offset) for index in mine]
    if offset == OFFSET_END:
        # The end offset now, not when the consumer fetches it later.
        for each in assigned:
            each.offset = consumer.get_watermark_offsets(each, 30)[1]
    consumer.assign(assigned)
    return consumer


def _due(message: Message) -> float:
    value = message.value()
    assert isinstance(value, bytes)
    due: float = DUE.unpack_from(value)[0]
    return due


def _quantile(waits_s: list[float]) -> dict[str, float]:
    ordered = sorted(waits_s)
    at = {name: ordered[int(share * (len(ordered) - 1))] for name, share in SHARES.items()} if ordered else {}
    return {name: wait * 1e3 for name, wait in at.items()}


SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


def _outcome(records: int, failed: int, seconds: float) -> dict[str, Any]:
    return {"records": records, "failed": failed, "seconds": seconds}


if __name__ == "__main__":
    main()
