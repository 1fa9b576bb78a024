"""A cluster of three brokers whose releases differ, and clients that check what a rolling upgrade does to records."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

from broker_fixture import wait_until
from command import Outcome, in_process
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from local_cluster import ENDED_S, LocalCluster
from previous_release import environment

BROKERS = (1, 2, 3)
PLAIN, TRANSACTIONAL = "plain", "transactional"
PARTITIONS = 6
UP_S = 120.0
READY_S = 60.0
ANSWER_S = 30.0
RECORDS_PER_TRANSACTION = 5
PAUSE_S = 0.01
"""Between two records, and between two transactions: the brokers share the machine with other tests."""

THIS_RELEASE = sys.executable


class RollingCluster(LocalCluster):
    """Three brokers, each started with the Python of one release or another."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, len(BROKERS))

    def restart(self, broker_id: int, python: str) -> None:
        """Restart one broker with another Python, by the steps of docs/operations/upgrade.md."""
        self.stop(broker_id)
        self.start(python)

    def start(self, python: str) -> None:
        """Start what does not run. Return once each broker may be stopped: all replicas are in sync."""
        started = self._up(python)
        assert started.returncode == 0, started.stderr
        for other in BROKERS:
            wait_until(lambda other=other: self.may_stop(other), READY_S, f"all in sync but broker {other}")

    def try_start(self, broker_id: int, python: str) -> str:
        """Start one broker that does not run, which is refused. Return the end of its log."""
        assert not self.is_running(broker_id)
        assert self._up(python).returncode != 0
        return (self.directory / f"broker-{broker_id}" / "broker.log").read_text()[-4000:]

    def stop(self, broker_id: int) -> None:
        """Stop one broker with SIGTERM, once it may be stopped. Return once its process is gone."""
        wait_until(lambda: self.may_stop(broker_id), READY_S, f"leave to stop broker {broker_id}")
        os.kill(self.broker(broker_id)["pid"], signal.SIGTERM)
        wait_until(lambda: not self.is_running(broker_id), ENDED_S, f"the end of broker {broker_id}")

    def may_stop(self, broker_id: int) -> bool:
        return self.run("cluster", "can-stop", str(broker_id)).exit_code == 0

    def run(self, *words: str) -> Outcome:
        """Run one command of this release."""
        return in_process(*words, bootstrap=self.bootstrap)

    def _up(self, python: str) -> "subprocess.CompletedProcess[str]":
        words = ["-m", "cordwood.cluster.cli", "up", "--detach", "--data-dir", str(self.directory), *self._size()]
        return subprocess.run(
            [python, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(python),
            cwd=self.directory.parent,
            timeout=UP_S,
            check=False,
        )


class Load:
    """An idempotent producer with acks=all, a transactional producer, and a group that reads what both commit.

    `check` ends them. Each acknowledged record and each record of a committed transaction is then there once, in the
    log and for the group, and no record of an aborted transaction.
    """

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap.servers": bootstrap}
        self._ending = threading.Event()
        self._failures: list[str] = []
        self._acked: set[bytes] = set()
        self._committed: set[bytes] = set()
        self._aborted: set[bytes] = set()
        self._read: set[bytes] = set()
        admin = AdminClient(self._common)
        created = admin.create_topics([NewTopic(topic, PARTITIONS, len(BROKERS)) for topic in (PLAIN, TRANSACTIONAL)])
        for topic in created.values():
            topic.result(ANSWER_S)
        self._writers = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._produce, self._commit)]
        self._reader = threading.Thread(target=self._guarded, args=(self._consume,))
        for thread in (*self._writers, self._reader):
            thread.start()

    def check(self) -> None:
        """End the clients, and compare. Raises AssertionError."""
        self._end()
        assert self._failures == []
        wanted = self._acked | self._committed
        assert len(self._acked) > 100
        assert len(self._committed) > 100
        assert wanted - self._read == set(), "records that the group has not read"
        stored = self._stored()
        assert len(stored) == len(set(stored)), "a record is there twice"
        assert set(stored) >= wanted
        assert set(stored) & self._aborted == set()
        assert self._read <= set(stored)

    def close(self) -> None:
        """End the clients, at the end of a test in any state."""
        self._end()

    def made(self) -> int:
        """Return the number of acknowledged records, for a test that waits until there are more."""
        return len(self._acked) + len(self._committed)

    def _end(self) -> None:
        self._ending.set()
        for thread in (*self._writers, self._reader):
            thread.join()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self._failures.append(f"{work.__name__}: {error!r}")

    def _produce(self) -> None:
        producer = Producer({**self._common, "enable.idempotence": True, "acks": "all"})

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failures.append(f"produce: {error}")
            else:
                self._acked.add(message.value())

        for number in count():
            if self._ending.wait(PAUSE_S):
                break
            producer.produce(PLAIN, b"p%d" % number, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(ANSWER_S) == 0

    def _commit(self) -> None:
        producer = Producer({**self._common, "transactional.id": "load"})
        producer.init_transactions(ANSWER_S)
        for number in count():
            if self._ending.wait(PAUSE_S):
                break
            values = {b"t%d-%d" % (number, index) for index in range(RECORDS_PER_TRANSACTION)}
            producer.begin_transaction()
            for value in values:
                producer.produce(TRANSACTIONAL, value)
            if number % 10 == 9 or not self._try_commit(producer):
                producer.abort_transaction(ANSWER_S)
                self._aborted |= values
            else:
                self._committed |= values

    def _try_commit(self, producer: Producer) -> bool:
        """Commit; return whether it is done. Raises KafkaException for an error that an abort does not settle."""
        try:
            producer.commit_transaction(ANSWER_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            return False
        return True

    def _consume(self) -> None:
        consumer = Consumer(
            {
                **self._common,
                "group.id": "load",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([PLAIN, TRANSACTIONAL])
        deadline_s = None
        while deadline_s is None or time.monotonic() < deadline_s:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._read.add(message.value())
            if any(thread.is_alive() for thread in self._writers):
                continue
            if deadline_s is None:
                deadline_s = time.monotonic() + READY_S
            if message is None and self._acked | self._committed <= self._read:
                break
        consumer.close()

    def _stored(self) -> list[bytes]:
        """Return the values of all committed records in the log."""
        consumer = Consumer({**self._common, "group.id": "check", "isolation.level": "read_committed"})
        places = [TopicPartition(topic, index, 0) for topic in (PLAIN, TRANSACTIONAL) for index in range(PARTITIONS)]
        ends = {(place.topic, place.partition): consumer.get_watermark_offsets(place, ANSWER_S)[1] for place in places}
        consumer.assign(places)
        values = []
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
            if message is None and all(
                place.offset >= ends[place.topic, place.partition] for place in consumer.position(places)
            ):
                break
        else:
            raise AssertionError("the log was not read to its end")
        consumer.close()
        return values
