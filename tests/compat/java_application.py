"""A Java application of two processes that are killed, or whose brokers are, while it works on its input."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from brokers import QUIET, Brokers
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from cordwood.chaos.live.process import wait_for

PROCESSES = ("a", "b")
DONE_S, ANSWER_S, STOP_S = 120.0, 30.0, 30.0

KeyAndValue = tuple[bytes | None, bytes]


class JavaApplication(AbstractContextManager["JavaApplication"], ABC):
    """Two processes with their output in files, from the start of the `with` block to its end."""

    def __init__(self, brokers: Brokers, place: Path) -> None:
        self._brokers, self._place = brokers, place
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.feed()
        for name in PROCESSES:
            self.start(name)
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        self.stop()

    @abstractmethod
    def command(self, name: str) -> Sequence[str]:
        """Return the command line of a process."""

    @abstractmethod
    def feed(self) -> None:
        """Add the next part of the input."""

    @abstractmethod
    def await_all(self) -> None:
        """Wait until the output has all of the input so far, and check that nothing is missing or comes twice."""

    def start(self, name: str) -> None:
        with (self._place / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill_and_restart(self, name: str) -> None:
        """Send SIGKILL to a process, and start it again."""
        process = self._processes[name]
        assert process.poll() is None, f"process {name} ended with {process.returncode} before"
        process.kill()
        process.wait()
        self.start(name)

    def stop(self) -> None:
        """Stop the processes; each leaves its group."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def survives_kills(self) -> None:
        """Kill each process in turn, with input before and after that."""
        self.await_all()
        for name in PROCESSES:
            self.feed()
            self.kill_and_restart(name)
            self.feed()
            self.await_all()

    def survives_kills_of_brokers(self) -> None:
        """Kill and restart each broker in turn, with input before and after that."""
        self.await_all()
        for at in range(self._brokers.count):
            self.feed()
            self._brokers.kill_and_restart(at)
            self.feed()
            self.await_all()

    def committed(self, topic: str, partitions: int, count: int) -> list[KeyAndValue]:
        """Return the committed records of a topic, to its end, once there are `count` of them or DONE_S have passed."""
        isolation = {"isolation.level": "read_committed", "enable.partition.eof": True}
        settings = {**QUIET, **isolation, "bootstrap.servers": self._brokers.bootstrap, "enable.auto.commit": False}
        reader = Consumer({**settings, "group.id": f"reader of {topic}"})
        reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        found: list[KeyAndValue] = []
        ended: set[int | None] = set()

        def read() -> bool:
            for message in reader.consume(1_000, timeout=0.5):
                error, key, value = message.error(), message.key(), message.value()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                elif error is None and isinstance(value, bytes):
                    ended.discard(message.partition())
                    found.append((key if isinstance(key, bytes) else None, value))
            return len(found) >= count and len(ended) == partitions

        try:
            wait_for(read, DONE_S)
        finally:
            reader.close()
        return found
