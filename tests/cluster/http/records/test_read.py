"""Records read over HTTP: lines up to the log end, and server-sent events that follow the log and resume."""

import http.client
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Producer
from http_client import EVENTS, HttpClient
from kio.schema.errors import ErrorCode
from kio.schema.produce.v8.request import PartitionProduceData, ProduceRequest, TopicProduceData
from raw_batches import bomb

from cordwood.chaos.live.flood.raw_connection import ask

SENT_PER_S, SENT_S = 10_000, 3


def resident_bytes(broker: RunningBroker) -> int:
    with open(f"/proc/{broker.pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


@pytest.fixture
def letters(api: HttpClient) -> str:
    """Return a topic of two partitions with a, b, c in the first and d, e in the second."""
    if api.get("/v1/topics/letters").status == 404:
        api.make_topic("letters", partitions=2)
        api.write("letters", "a", "b", "c", query="partition=0")
        api.write("letters", "d", "e", query="partition=1", key="k")
    return "letters"


def test_lines_come_from_where_they_are_asked_for(api: HttpClient, letters: str) -> None:
    assert sorted(api.values(letters)) == ["a", "b", "c", "d", "e"]
    assert api.values(letters, "partition=0") == ["a", "b", "c"]
    assert api.values(letters, "partition=0&from=1") == ["b", "c"]
    assert api.values(letters, "partition=0&from=latest") == []
    assert api.values(letters, "partition=0&from=99") == []
    times = [record["timestamp"] for record in api.read(letters, "partition=1")]
    assert api.values(letters, f"partition=1&from=@{times[0]}") == ["d", "e"]
    assert api.values(letters, f"partition=1&from=@{times[0] + 60_000}") == []


def test_lines_end_when_it_is_enough(api: HttpClient, letters: str) -> None:
    assert api.values(letters, "partition=0&limit=2") == ["a", "b"]
    assert len(api.values(letters, "limit=4")) == 4
    assert api.values(letters, "partition=0&max_bytes=1") == ["a"]
    assert sorted(api.values(letters, "key=k")) == ["d", "e"]
    assert api.values(letters, "key=k&limit=1") == ["d"]


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("from=yesterday", 400, "earliest, latest"),
        ("from=-1", 400, "earliest, latest"),
        ("from=" + "9" * 500, 400, "earliest, latest"),
        ("partition=2", 404, "partitions 0 to 1"),
        ("partition=x", 400, "partition"),
        ("limit=0", 400, "limit"),
        ("lmit=1", 400, "lmit"),
        ("value_encoding=hex", 400, "hex"),
        ("isolation=serializable", 400, "serializable"),
        ("key=%23&key_encoding=base64", 400, "key"),
    ],
)
def test_a_reader_with_an_impossible_request_gets_an_error(
    api: HttpClient, letters: str, query: str, status: int, word: str
) -> None:
    api.get(f"/v1/topics/{letters}/records?{query}").refused(status, word)


def test_events_follow_the_log(api: HttpClient) -> None:
    api.make_topic("followed")
    api.write("followed", "before")
    with api.follow("followed") as events:
        api.write("followed", "a")
        api.write("followed", "b")
        assert events.values(2) == ["a", "b"]


def test_a_client_that_comes_back_goes_on_after_what_it_has_seen(api: HttpClient) -> None:
    api.make_topic("resumed", partitions=2)
    api.write("resumed", "a", "b", query="partition=0")
    api.write("resumed", "c", "d", query="partition=1")
    with api.follow("resumed", "from=earliest") as events:
        seen = events.take(3)
    with api.follow("resumed", last_event_id=seen[-1].id) as events:
        rest = events.take(1)
        assert sorted(event.data["value"] for event in seen + rest) == ["a", "b", "c", "d"]
    api.get("/v1/topics/resumed/records", accept=EVENTS, last_event_id="x").refused(400, "Last-Event-ID")


def test_a_follower_gets_a_notice_of_what_it_has_missed(api: HttpClient, served: RunningBroker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    api.make_topic("short")
    api.write("short", "a", "b", "c")
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    place = TopicPartition("short", 0, 2)
    admin.delete_records([place])[place].result(10)
    with api.follow("short", last_event_id="0:0") as events:
        gap, record = events.take(2)
    assert (gap.kind, gap.data) == ("gap", {"topic": "short", "partition": 0, "from": 0, "to": 2})
    assert (record.data["value"], record.id) == ("c", "0:3")


def test_a_follower_of_a_topic_that_is_deleted_gets_an_error(api: HttpClient) -> None:
    api.make_topic("doomed")
    with api.follow("doomed") as events:
        api.delete("/v1/topics/doomed")
        event = events.next()
        assert (event.kind, event.data["code"]) == ("mistake", "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_follower_hears_that_the_broker_is_still_there(api: HttpClient) -> None:
    api.make_topic("silent")
    with api.follow("silent") as events:
        assert events.comment() == ": still here"


def test_a_follower_stays_current_under_load(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("loaded")
    producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 5})
    count = SENT_PER_S * SENT_S
    with api.follow("loaded") as events, ThreadPoolExecutor(1) as executor:
        following = executor.submit(events.values, count)
        begun = time.monotonic()
        for number in range(count):
            producer.produce("loaded", str(number))
            if number % 100 == 0:
                producer.poll(max(0.0, begun + number / SENT_PER_S - time.monotonic()))
        assert producer.flush(30) == 0
        # A generous bound, since the reading client shares the processor.
        assert following.result(5.0) == [str(number) for number in range(count)]


def test_a_reader_that_takes_nothing_costs_no_memory(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("large")
    producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 50})
    for _ in range(60):
        for _ in range(1000):
            producer.produce("large", b"x" * 1000)
        producer.flush(30)
    before = resident_bytes(served)
    host, _, port = api.address.partition(":")
    stuck = [socket.create_connection((host, int(port))) for _ in range(4)]
    for connection in stuck:
        connection.sendall(b"GET /v1/topics/large/records HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connection.settimeout(10)
        assert connection.recv(12) == b"HTTP/1.1 200"
    time.sleep(2)
    assert resident_bytes(served) - before < 60 << 20, "60 MB are there to be read by each of four"
    assert api.get("/v1/cluster").status == 200
    for connection in stuck:
        connection.close()


def test_one_record_of_a_batch_of_a_million_costs_no_memory(api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("packed", configs={"retention.ms": "-1"})
    data = PartitionProduceData(index=0, records=bomb())
    topic = TopicProduceData(name="packed", partition_data=(data,))
    request = ProduceRequest(transactional_id=None, acks=-1, timeout=timedelta(seconds=10), topic_data=(topic,))
    (produced,) = ask(served.bootstrap, request).responses[0].partition_responses
    assert produced.error_code is ErrorCode.none, "the broker has to have the batch"
    before = resident_bytes(served)
    assert api.values("packed", "limit=1") == ["v"]
    assert resident_bytes(served) - before < 32 << 20, "it is more than 100 MB in records"


def test_a_stream_has_no_head_to_be_asked_for(api: HttpClient, letters: str) -> None:
    answer = api.ask("HEAD", f"/v1/topics/{letters}/records", None, {"Accept": EVENTS})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")


def test_there_are_only_so_many_readers(api: HttpClient) -> None:
    from cordwood.cluster.http.bodies import STREAMS_MAX

    api.make_topic("crowded")
    readers = [api.follow("crowded") for _ in range(STREAMS_MAX)]
    api.get("/v1/topics/crowded/records", accept=EVENTS).refused(429, "readers")
    for reader in readers:
        reader.close()
    api.write("crowded", "a")

    def is_there_room() -> bool:
        return api.get("/v1/topics/crowded/records").status == 200

    wait_until(is_there_room, 20, "room for a reader")


def test_a_reader_that_hangs_up_is_forgotten(api: HttpClient) -> None:
    api.make_topic("left")
    for _ in range(100):
        connection = http.client.HTTPConnection(api.address)
        connection.request("GET", "/v1/topics/left/records")
        connection.close()
    assert api.read("left") == []


def test_large_records_are_read_one_reader_at_a_time(api: HttpClient) -> None:
    api.make_topic("large-records", configs={"max.message.bytes": str(16 << 20)})
    sizes = [1, 1_000_000, 2, 3_000_000, 3]
    for size in sizes:
        api.write("large-records", "v" * size)
    with ThreadPoolExecutor(4) as readers:
        for read in readers.map(lambda _: api.values("large-records"), range(8)):
            assert [len(value) for value in read] == sizes
    assert [len(value) for value in api.values("large-records", "limit=4")] == sizes[:4]


def test_readers_that_take_nothing_of_a_large_record_keep_it_from_no_other(api: HttpClient) -> None:
    api.make_topic("for-all", configs={"max.message.bytes": str(8 << 20)})
    api.write("for-all", "v" * 6_000_000)
    host, _, port = api.address.partition(":")
    stuck = [socket.socket() for _ in range(2)]
    for connection in stuck:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        connection.sendall(b"GET /v1/topics/for-all/records HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connection.settimeout(10)
        assert connection.recv(12) == b"HTTP/1.1 200"
    begun = time.monotonic()
    [value] = api.values("for-all")
    assert len(value) == 6_000_000
    # Each of the two has some seconds; it would have a minute if no other client waited.
    assert time.monotonic() - begun < 30
    for connection in stuck:
        connection.close()
