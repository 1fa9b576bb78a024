"""compose.yaml from a clean copy with one command, and a leader killed under load."""

from collections.abc import Callable, Iterator

import pytest
from broker_fixture import wait_until
from compose_fixture import BOOTSTRAP, BROKERS, EVERY_BROKER, ComposedCluster, clean_copy, why_not_here
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from requirements import Requirement, needs
from topics import values_of

TOPIC = "orders"
RECORDS = 30_000
KILL_AT = 10_000
IN_FLIGHT_MAX = 5_000

ANSWER_S = 15.0
SETTLE_S = 60.0
REJOIN_S = 60.0

LACKING = why_not_here()

pytestmark = [
    needs(Requirement.DOCKER, LACKING is None, str(LACKING)),
    # The first build downloads all dependencies.
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposedCluster]:
    composed = ComposedCluster(clean_copy(tmp_path_factory.mktemp("clone")))
    try:
        composed.up()
        yield composed
    finally:
        composed.down()
    assert composed.leftovers() == []


def test_nothing_acknowledged_is_lost_with_the_leader(cluster: ComposedCluster) -> None:
    create_topic()
    leader = partition().leader
    acknowledged = send_all(half_way=lambda: cluster.kill(leader))
    assert values_of(EVERY_BROKER, TOPIC, 0) == acknowledged
    wait_until(lambda: leader not in partition().isrs, SETTLE_S, f"broker {leader} to be missed")

    cluster.start(leader)
    wait_until(lambda: set(partition().isrs) == set(BROKERS), REJOIN_S, f"broker {leader} to be in sync again")
    wait_until(lambda: cluster.is_healthy(leader), REJOIN_S, f"broker {leader} to be called healthy again")
    assert values_of(EVERY_BROKER, TOPIC, 0) == acknowledged


def test_a_broker_runs_without_root_and_stops_on_request(cluster: ComposedCluster) -> None:
    assert cluster.said_by(1, "id", "--user").strip() != "0"
    assert cluster.stop(1) == 0
    cluster.up()


def create_topic() -> None:
    """Create a topic of one partition, with the replication factor of compose.yaml."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(ANSWER_S)


def partition() -> PartitionMetadata:
    """Return the topic's partition from the metadata of a running broker."""
    admin = AdminClient({"bootstrap.servers": EVERY_BROKER, "log_level": 0})
    return admin.list_topics(TOPIC, ANSWER_S).topics[TOPIC].partitions[0]


def send_all(half_way: Callable[[], None]) -> list[bytes | None]:
    """Produce RECORDS records with acks=all, calling `half_way` with some in flight. Return the acknowledged values."""
    acknowledged: list[bytes | None] = []
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": IN_FLIGHT_MAX,
            "log_level": 0,
        }
    )
    has_happened = False
    for number in range(RECORDS):
        while len(producer) >= IN_FLIGHT_MAX:
            producer.poll(0.01)
        producer.produce(TOPIC, b"record %d" % number, on_delivery=delivered)
        producer.poll(0)
        if not has_happened and len(acknowledged) >= KILL_AT and len(producer) > 0:
            half_way()
            has_happened = True
    assert producer.flush(SETTLE_S) == 0
    assert has_happened
    assert refused == []
    assert len(acknowledged) == RECORDS
    return acknowledged
