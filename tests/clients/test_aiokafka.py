"""aiokafka: records, groups, commits and idempotence."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from broker_fixture import RunningBroker
from cutting_proxy import CuttingProxy
from group_members import group_of, three_members_join_crash_and_leave
from sent_records import CODECS, PARTITIONS, RECORDS, Sent, by_partition, partition_of, records
from topics import make_topic, values_of


async def read_back(bootstrap: str, topic: str, count: int) -> dict[int, list[Sent]]:
    found: dict[int, list[Sent]] = {index: [] for index in range(PARTITIONS)}
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        for _ in range(count):
            message = await asyncio.wait_for(consumer.getone(), 15)
            assert message.offset == len(found[message.partition])
            found[message.partition].append(Sent(message.key, message.value, tuple(message.headers), message.timestamp))
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_byte_for_byte(shared: RunningBroker, topic: str, codec: str) -> None:
    sent = records()

    async def send() -> None:
        compression = None if codec == "none" else codec
        settings = {"bootstrap_servers": shared.bootstrap, "compression_type": compression, "linger_ms": 5}
        async with AIOKafkaProducer(**settings, acks="all") as producer:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=partition_of(number),
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for number, record in enumerate(sent)
            ]
            await asyncio.wait_for(asyncio.gather(*futures), 60)

    asyncio.run(send())
    assert asyncio.run(read_back(shared.bootstrap, topic, RECORDS)) == by_partition(sent)


def test_a_group_of_three(shared: RunningBroker, group_topic: str, send_to_all: Callable[[], dict[int, int]]) -> None:
    with group_of("aiokafka", shared.bootstrap, group_topic) as group:
        three_members_join_crash_and_leave(group, send_to_all)


def test_committed_offsets_survive_a_restart(broker: RunningBroker) -> None:
    topic = make_topic(broker.bootstrap, "numbers", 1)
    place = TopicPartition(topic, 0)
    # If the broker dies before it has stored the first consumer's departure, the second waits for the session timeout.
    session = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": "g", "auto_offset_reset": "earliest", **session}

    async def read(consumer: AIOKafkaConsumer, count: int) -> list[bytes | None]:
        return [(await asyncio.wait_for(consumer.getone(), 15)).value for _ in range(count)]

    async def before() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(200):
                await producer.send(topic, b"%d" % number)
        async with AIOKafkaConsumer(topic, **settings, enable_auto_commit=False) as consumer:
            assert await read(consumer, 100) == [b"%d" % number for number in range(100)]
            await consumer.commit({place: OffsetAndMetadata(100, "what I said")})

    async def after() -> None:
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            assert await consumer.committed(place) == 100
            assert await read(consumer, 100) == [b"%d" % number for number in range(100, 200)]

    asyncio.run(before())
    broker.kill()
    broker.start()
    asyncio.run(after())


def test_an_idempotent_producer_whose_connections_are_cut(
    behind_a_proxy: tuple[RunningBroker, CuttingProxy],
) -> None:
    _broker, proxy = behind_a_proxy

    async def send() -> int:
        settings = {"bootstrap_servers": proxy.bootstrap, "max_batch_size": 500, "retry_backoff_ms": 20}
        async with AIOKafkaProducer(**settings, enable_idempotence=True) as producer:
            proxy.cut_every(2, 8)
            sent = 0
            # The proxy counts responses that arrive in one read as one, so the number of sends until enough cuts
            # varies.
            while proxy.cuts < 5:
                numbers = range(sent, sent + 4000)
                futures = [await producer.send("numbers", b"%d" % number, partition=number % 2) for number in numbers]
                await asyncio.wait_for(asyncio.gather(*futures), 60)
                sent += 4000
            proxy.heal()
        return sent

    sent = asyncio.run(send())
    for partition in range(2):
        assert values_of(proxy.bootstrap, "numbers", partition) == [b"%d" % n for n in range(partition, sent, 2)]
