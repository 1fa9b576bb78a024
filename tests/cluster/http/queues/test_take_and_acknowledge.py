"""Queues over HTTP at a broker: records are taken, acknowledged, released, rejected, renewed, and delivered again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from command import in_process
from http_client import HttpClient

ROOT = Path(__file__).resolve().parents[4]
LOCK_S = 3.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Yield a one-node broker with HTTP, whose locks are short."""
    broker = RunningBroker(
        tmp_path_factory.mktemp("queues") / "data",
        http_listen=f"127.0.0.1:{free_port()}",
        group_share_min_record_lock_duration_ms="1000",
        group_share_record_lock_duration_ms=str(int(LOCK_S * 1000)),
    ).start()
    try:
        yield broker
    finally:
        broker.stop()


class Queue:
    """The queue of a topic, whose group begins at the first record."""

    def __init__(self, api: HttpClient, broker: RunningBroker, name: str, partitions: int = 1) -> None:
        self.api, self.broker, self.name = api, broker, name
        self.topic = api.make_topic(f"{name}-records", partitions=partitions)
        earliest = "share.auto.offset.reset=earliest"
        configured = in_process("group", "config", name, "--config", earliest, bootstrap=broker.bootstrap)
        assert configured.exit_code == 0, configured.stderr

    def take(self, **more: object) -> list[Any]:
        """Take records. Return them."""
        answer = self.api.post(f"/v1/queues/{self.name}/take", {"topics": [self.topic], "wait_ms": 10_000, **more})
        assert answer.status == 200, answer.content
        records: list[Any] = answer.json["records"]
        return records

    def take_values(self, **more: object) -> list[Any]:
        return [record["value"] for record in self.take(**more)]

    def send(self, action: str, *records: Any) -> Any:
        """Acknowledge records with this action. Return the answer."""
        return self.api.post(f"/v1/queues/{self.name}/{action}", {"receipts": [one["receipt"] for one in records]})

    def do(self, action: str, *records: Any) -> None:
        answer = self.send(action, *records)
        assert (answer.status, answer.json["done"]) == (200, len(records)), answer.content

    def described(self) -> Any:
        return in_process("group", "describe", self.name, "--json", bootstrap=self.broker.bootstrap).json


@pytest.fixture
def queue(api: HttpClient, served: RunningBroker, request: pytest.FixtureRequest) -> Queue:
    """Return a queue of the test's own."""
    return Queue(api, served, request.node.name.removeprefix("test_")[:40].strip("_"))


def test_taken_records_have_what_reads_show_and_a_receipt(queue: Queue) -> None:
    queue.api.write(queue.topic, "3 apples", key="alice")
    (record,) = queue.take(value_encoding="base64")
    assert (record["topic"], record["partition"], record["offset"]) == (queue.topic, 0, 0)
    assert (record["key"], record["value_base64"], record["delivery_count"]) == ("alice", "MyBhcHBsZXM=", 1)
    queue.do("acknowledge", record)


def test_acknowledged_records_are_done(queue: Queue) -> None:
    queue.api.write(queue.topic, "a", "b", "c")
    records = queue.take(max_records=2)
    assert [record["value"] for record in records] == ["a", "b"]
    queue.do("acknowledge", *records)
    queue.do("acknowledge", *records)
    last = queue.take()
    assert [record["value"] for record in last] == ["c"]
    queue.do("acknowledge", *last)
    assert queue.take(wait_ms=0) == []
    wait_until(lambda: queue.described()["partitions"][0]["start"] == 3, 20, "the start offset to move")


def test_released_records_are_delivered_again_at_once(queue: Queue) -> None:
    queue.api.write(queue.topic, "a")
    (first,) = queue.take()
    queue.do("release", first)
    began = time.monotonic()
    (second,) = queue.take()
    assert time.monotonic() - began < LOCK_S
    assert (second["value"], second["delivery_count"]) == ("a", 2)
    queue.send("acknowledge", first).refused(410, "not locked")
    queue.do("acknowledge", second)


def test_rejected_records_are_not_delivered_again(queue: Queue) -> None:
    queue.api.write(queue.topic, "poison", "b")
    poison, rest = queue.take()
    queue.do("reject", poison)
    queue.do("release", rest)
    assert queue.take_values() == ["b"]


def test_records_of_a_worker_that_died_are_delivered_again_after_their_lock(queue: Queue) -> None:
    queue.api.write(queue.topic, "a")
    (lost,) = queue.take()
    assert queue.take(wait_ms=500) == []
    (again,) = queue.take()
    assert (again["value"], again["delivery_count"]) == ("a", 2)
    refused = queue.send("acknowledge", lost)
    refused.refused(410, "not locked")
    assert refused.json["refused"][0]["receipt"] == lost["receipt"]
    assert refused.json["code"] == "INVALID_RECORD_STATE"
    queue.do("acknowledge", again)


def test_a_renewed_lock_begins_anew(queue: Queue) -> None:
    queue.api.write(queue.topic, "a")
    (record,) = queue.take()
    for _ in range(4):
        time.sleep(LOCK_S / 2)
        queue.do("renew", record)
    assert queue.take(wait_ms=0) == []
    queue.do("acknowledge", record)


def test_one_receipt_without_a_lock_spoils_no_other(queue: Queue) -> None:
    queue.api.write(queue.topic, "a", "b")
    first, second = queue.take()
    queue.do("release", first)
    answer = queue.send("acknowledge", first, second)
    assert (answer.status, answer.json["done"]) == (409, 1)
    assert [(row["receipt"], row["status"]) for row in answer.json["refused"]] == [(first["receipt"], 410)]


def test_workers_share_the_records_and_none_gets_what_another_has(queue: Queue) -> None:
    count = 200
    queue.api.write(queue.topic, *map(str, range(count)))

    def work(_worker: int) -> list[str]:
        done: list[str] = []
        while records := queue.take(max_records=7, wait_ms=1_000):
            queue.do("acknowledge", *records)
            done += [record["value"] for record in records]
        return done

    with ThreadPoolExecutor(4) as workers:
        shares = list(workers.map(work, range(4)))
    assert sorted(int(value) for share in shares for value in share) == list(range(count))
    assert all(shares), "each worker got some"


def test_a_client_that_waits_gets_a_record_as_soon_as_it_is_written(queue: Queue) -> None:
    assert queue.take(wait_ms=0) == []
    with ThreadPoolExecutor(1) as waiting:
        taken = waiting.submit(queue.take_values, wait_ms=20_000)
        time.sleep(1)
        queue.api.write(queue.topic, "a")
        written = time.monotonic()
        assert taken.result() == ["a"]
        assert time.monotonic() - written < 5


def test_the_command_line_and_http_show_the_queue(queue: Queue) -> None:
    queue.api.write(queue.topic, "a", "b", "c")
    records = queue.take(max_records=2)
    described = queue.described()
    assert (described["type"], described["state"]) == ("share", "stable")
    assert len(described["members"]) == 1
    (row,) = described["partitions"]
    assert (row["start"], row["in_flight"], row["locked"], row["deliveries"]) == (0, 2, 2, 1)
    shown = queue.api.get(f"/v1/groups/{queue.name}").json
    assert (shown["type"], shown["partitions"][0]["share"]["in_flight"]) == ("share", 2)
    assert any(
        row["group"] == queue.name and row["type"] == "share" for row in queue.api.get("/v1/groups").json["groups"]
    )
    queue.do("acknowledge", *records)


def test_wrong_requests_are_refused_in_words(queue: Queue) -> None:
    path = f"/v1/queues/{queue.name}"
    queue.api.post(f"{path}/take", {"topics": ["nowhere"]}).refused(404, "nowhere")
    queue.api.post(f"{path}/take", {"topics": []}).refused(422)
    queue.api.post(f"{path}/take", {"topics": [queue.topic], "max_records": 501}).refused(422)
    queue.api.post(f"{path}/acknowledge", {"receipts": ["x" * 72]}).refused(422, "not a receipt")
    queue.api.post(f"{path}/acknowledge", {"receipts": []}).refused(422)
    queue.api.write(queue.topic, "a")
    (record,) = queue.take()
    other = queue.api.post("/v1/queues/another/acknowledge", {"receipts": [record["receipt"]]})
    other.refused(410, "not locked")


def test_the_worker_of_the_examples_works(queue: Queue, served: RunningBroker) -> None:
    queue.api.write(queue.topic, "a", "b")
    url = f"http://{served.settings['http.listen']}/v1/queues/{queue.name}"
    worker = subprocess.Popen(
        [sys.executable, str(ROOT / "examples/queues/worker.py"), queue.topic],
        env={**os.environ, "QUEUE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        assert [worker.stderr.readline().strip() for _ in range(2)] == ["a", "b"]
        wait_until(lambda: queue.described()["partitions"][0]["start"] == 2, 20, "both to be acknowledged")
    finally:
        worker.kill()
        worker.wait()
