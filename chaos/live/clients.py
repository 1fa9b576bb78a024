"""Producers and a reader in processes of their own, and their logs of acknowledgements and polls."""

import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError

from cordwood.chaos.live.ack_log import AckLog, BrokenPromise, SentRecord
from cordwood.chaos.live.process import wait_for
from cordwood.chaos.live.rows import ANSWERED, READ, Answered, PolledRecord, RowsReader

END_S = 90.0
"""Longer than a client's own timeouts."""
READ_S = 300.0
FOLLOWER_S = 20.0

QUICK = (
    "linger.ms=2",
    "request.timeout.ms=3000",
    "socket.timeout.ms=4000",
    "reconnect.backoff.ms=20",
    "reconnect.backoff.max.ms=200",
    "retry.backoff.ms=20",
    "retry.backoff.max.ms=200",
    "topic.metadata.refresh.interval.ms=1000",
)
"""Short client timeouts, so that a measured time is the cluster's."""

QUICK_READER = ("reconnect.backoff.ms=20", "reconnect.backoff.max.ms=200", "socket.timeout.ms=4000")

Found = dict[int, list[tuple[int, SentRecord]]]


@dataclass(frozen=True, slots=True)
class Workload:
    """The load. `settings` are librdkafka's, for each producer; `reader_settings` for the reader."""

    topic: str = "rounds"
    partitions: int = 6
    producers: int = 4
    per_second: int = 200
    """Records per second of each producer."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    is_group: bool = False
    """Whether the reader is a member of a group."""
    settings: Sequence[str] = QUICK
    reader_settings: Sequence[str] = QUICK_READER


class Clients:
    """Producers and a reader, started once and stopped once. Their files are below `place`."""

    def __init__(self, bootstrap: str, workload: Workload, place: Path) -> None:
        self.workload = workload
        self.answers: list[tuple[int, Answered]] = []
        """Each producer's number and answer, as far as they have been read."""
        self._bootstrap, self._place = bootstrap, place
        self._producers: dict[int, subprocess.Popen[str]] = {}
        self._rows: dict[int, RowsReader[Answered]] = {}
        self._reader: subprocess.Popen[str] | None = None
        place.mkdir(parents=True)

    def start(self) -> None:
        """Start all producers and the reader that follows them."""
        load = self.workload
        for number in range(load.producers):
            rows = self._place / f"producer-{number}"
            self._rows[number] = RowsReader(rows, ANSWERED, Answered._make)
            options = {"number": number, "per-second": load.per_second, "rows": rows}
            self._producers[number] = self._run("producer_program", options, load.settings)
        group = ["--group"] if load.is_group else []
        self._reader = self._run("reader_program", {"rows": self._place / "reader"}, load.reader_settings, *group)

    def served_after(self, moment: float, partitions: Iterable[int], seconds: float) -> dict[int, float]:
        """Return, by partition, the seconds from `moment` to the first acknowledgement of a record sent after it.

        A partition without one within `seconds` from now is missing.
        """
        waited: dict[int, float] = {}
        wanted = set(partitions)

        def are_all_served() -> bool:
            for answer in self._look():
                if answer.sent_at >= moment and not answer.error and answer.partition in wanted:
                    waited.setdefault(answer.partition, answer.answered_at - moment)
            return wanted <= waited.keys()

        wait_for(are_all_served, seconds)
        return waited

    def stop_sending(self) -> list[BrokenPromise]:
        """End every producer once all its sends are answered. Return an anomaly for each that fails to."""
        anomalies = []
        for number, process in self._producers.items():
            try:
                output, _ = process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                output = f"it did not end within {END_S:.0f} s"
            if process.returncode or output.strip() != "0":
                anomalies.append(
                    BrokenPromise("unanswered", f"producer {number}: {output.strip() or 'it ended by itself'}")
                )
        self._look()
        return anomalies

    def stop_reading(self, found: Found) -> list[PolledRecord]:
        """Wait until the reader has read to the end of `found`, and end it. Return all its rows."""
        assert self._reader is not None, "no reader was started"
        rows = RowsReader(self._place / "reader", READ, PolledRecord._make)
        reads: list[PolledRecord] = []
        last: dict[int, int] = {}

        def is_at_the_end() -> bool:
            for read in rows.new_rows():
                reads.append(read)
                last[read.partition] = read.offset
            return all(records[-1][0] <= last.get(place, -1) for place, records in found.items() if records)

        wait_for(is_at_the_end, FOLLOWER_S)
        self._reader.communicate(timeout=END_S)
        reads.extend(rows.new_rows())
        return reads

    def read_all(self, bootstrap: str | None = None, settings: Sequence[str] = QUICK_READER) -> list[PolledRecord]:
        """Read every record from start to end with a new reader. Raises TimeoutError where the end is not reached."""
        path = self._place / f"whole-{time.monotonic_ns()}"
        reading = self._run("reader_program", {"rows": path}, settings, "--until-end", bootstrap=bootstrap)
        try:
            reading.communicate(timeout=READ_S)
        except subprocess.TimeoutExpired:
            reading.kill()
        if reading.returncode != 0:
            raise TimeoutError("a consumer did not reach the end of the log")
        return list(RowsReader(path, READ, PolledRecord._make).new_rows())

    def ack_log(self) -> AckLog:
        """Return all acknowledgements and failures so far."""
        ack_log = AckLog()
        for number, answer in self.answers:
            sent = SentRecord(number, answer.partition, answer.number)
            if answer.error:
                ack_log.fail(sent, KafkaError(answer.error).str())
            else:
                ack_log.acknowledge(sent, answer.offset)
        return ack_log

    def kill(self) -> None:
        """Kill all processes that still run."""
        for process in (*self._producers.values(), *([self._reader] if self._reader else [])):
            process.kill()
            process.wait()

    def _look(self) -> list[Answered]:
        new_rows = [(number, row) for number, rows in self._rows.items() for row in rows.new_rows()]
        self.answers += new_rows
        return [row for _, row in new_rows]

    def _run(
        self,
        program: str,
        options: Mapping[str, object],
        settings: Sequence[str],
        *flags: str,
        bootstrap: str | None = None,
    ) -> "subprocess.Popen[str]":
        load = self.workload
        common = {"bootstrap": bootstrap or self._bootstrap, "topic": load.topic, "partitions": load.partitions}
        command = [sys.executable, "-m", f"cordwood.chaos.live.{program}", *flags]
        for key, value in {**common, **options}.items():
            command += [f"--{key}", str(value)]
        for setting in settings:
            command += ["--setting", setting]
        with (self._place / f"{program}.errors").open("ab") as errors:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self._place
            )


def by_partition(reads: Collection[PolledRecord], partitions: int) -> Found:
    """Return the records of a whole read, by partition, in read order."""
    found: Found = {partition: [] for partition in range(partitions)}
    for read in reads:
        if not read.error:
            sent = SentRecord(read.producer, read.named_partition, read.number)
            found[read.partition].append((read.offset, sent))
    return found
