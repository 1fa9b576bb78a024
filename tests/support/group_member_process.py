"""One consumer group member in a process that a test can kill: prints its events as JSON lines.

    python group_member_process.py CLIENT BOOTSTRAP GROUP TOPIC PROTOCOL

CLIENT is confluent, consumer-protocol, aiokafka or kafka-python; PROTOCOL is eager or cooperative. SIGTERM makes the
member leave the group. The client's warnings go to standard error.
"""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Iterable
from typing import Any

SESSION_MS = 3000
HEARTBEAT_MS = 300

stopping = False


def stop(_number: int, _frame: object) -> None:
    global stopping
    stopping = True


def tell(event: str, **what: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **what}) + "\n")
    sys.stdout.flush()


def indexes(partitions: Iterable[Any]) -> list[int]:
    return sorted(partition.partition for partition in partitions)


def confluent(bootstrap: str, group: str, topic: str, is_cooperative: bool) -> None:
    settings = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky" if is_cooperative else "range",
    }
    _confluent(bootstrap, group, topic, settings)


def consumer_protocol(bootstrap: str, group: str, topic: str, is_cooperative: bool) -> None:
    """Run confluent-kafka with the consumer protocol, in which the broker has the timeouts and the assignor."""
    assert is_cooperative, "the consumer protocol is incremental"
    _confluent(bootstrap, group, topic, {"group.protocol": "consumer"})


def _confluent(bootstrap: str, group: str, topic: str, settings: dict[str, Any]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _consumer, partitions: tell("assigned", partitions=indexes(partitions)),
        on_revoke=lambda _consumer, partitions: tell("revoked", partitions=indexes(partitions)),
        on_lost=lambda _consumer, partitions: tell("revoked", partitions=indexes(partitions)),
    )
    while not stopping:
        messages = [message for message in consumer.consume(500, 0.1) if message.error() is None]
        for message in messages:
            tell("read", partition=message.partition(), offset=message.offset())
        if messages:
            consumer.commit(asynchronous=False)
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, is_cooperative: bool) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Teller(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell("assigned", partitions=indexes(assigned))

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell("revoked", partitions=indexes(revoked))

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[CooperativeStickyAssignor if is_cooperative else RangePartitionAssignor],
    )
    consumer.subscribe([topic], listener=Teller())
    # The consumer must know the topic before it joins. Otherwise its first assignment is empty, and it joins again
    # once it has metadata. If a poll's timeout then expires between the responses of JoinGroup and SyncGroup,
    # kafka-python 3.0.12 forgets that it is joining: need_rejoin() sees no difference any more, so no later poll takes
    # the assignment from the coordinator, and there are no heartbeats either. The race is a matter of milliseconds.
    assert consumer.partitions_for_topic(topic)
    while not stopping:
        polled = consumer.poll(timeout_ms=100)
        for partition, messages in polled.items():
            for message in messages:
                tell("read", partition=partition.partition, offset=message.offset)
        if polled:
            consumer.commit()
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, is_cooperative: bool) -> None:
    assert not is_cooperative, "aiokafka has no cooperative assignor"
    asyncio.run(_aiokafka(bootstrap, group, topic))


async def _aiokafka(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.abc import ConsumerRebalanceListener

    class Teller(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell("assigned", partitions=indexes(assigned))

        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell("revoked", partitions=indexes(revoked))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Teller())
    await consumer.start()
    while not stopping:
        polled = await consumer.getmany(timeout_ms=100)
        for partition, messages in polled.items():
            for message in messages:
                tell("read", partition=partition.partition, offset=message.offset)
        if polled:
            await consumer.commit()
    await consumer.stop()


CLIENTS = {
    "confluent": confluent,
    "consumer-protocol": consumer_protocol,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, stop)
    client, bootstrap, group, topic, protocol = sys.argv[1:]
    CLIENTS[client](bootstrap, group, topic, protocol == "cooperative")
