"""The phases of the measurement: producing, others beside a cold reader, an outage of the store, and a whole read."""

import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cordwood.bench.archive.brokers import ArchivingBrokers, DiskUse
from cordwood.bench.generator import Generator, LoadFailed
from cordwood.bench.lines import GeneratorMode, LineOutcome, LoadLine
from cordwood.bench.systems import Running
from cordwood.chaos.live.object_servers import ObjectServer
from cordwood.replication.log_directory import TOPICS

ARCHIVED, PLAIN, OTHERS = "archived", "plain", "others"
PARTITIONS, REPLICAS = 6, 3
RECORD_BYTES = 1000
SEGMENTS = 6
"""Segments of a partition that a disk keeps, the active one and the oldest one included."""
ROUND_BYTES_MAX = 1_000_000_000
"""Bytes that are produced at a time: the generator has a limit of some minutes."""
PLAIN_ROUNDS_MAX = 5
BESIDE_BYTES_MAX = 1_000_000_000
"""Bytes that the cold reader reads again and again: more than the brokers' caches."""
OTHERS_RATE, OTHERS_S = 1000, 15.0
OUTAGE_RATE = 3000
"""Records a second while the store is stopped, so that the disks have room for a long outage."""
OUTAGE_PIECE_S = 60.0
ANSWER_S = 60.0
CAUGHT_UP_S = 600.0
POLL_S = 0.2
MB = 10**6


class NotCaughtUp(Exception):
    """The archive did not catch up; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class ArchiveWorkload:
    """The phases to measure, and their sizes."""

    archived_bytes: int
    local_bytes: int
    """What each broker's disk keeps of the archived topic."""
    outage_s: float
    reader_mb_s: float = 0.0
    """Largest rate of the reader beside others; 0 for none."""

    @property
    def segment_bytes(self) -> int:
        return self.local_bytes // PARTITIONS // SEGMENTS

    @property
    def round_bytes(self) -> int:
        return min(ROUND_BYTES_MAX, self.archived_bytes // 4)

    @property
    def rounds(self) -> int:
        return self.archived_bytes // self.round_bytes


@dataclass(slots=True)
class Bench:
    """One run on running brokers. `figures` are its results."""

    work: ArchiveWorkload
    brokers: ArchivingBrokers
    running: Running
    store: ObjectServer
    load: Generator
    distant_load: Generator
    """The same program at a lower priority: a reader that is on another machine otherwise."""
    say: Callable[[str], None]
    disks: DiskUse = field(init=False)
    figures: dict[str, object] = field(default_factory=dict)
    acknowledged: int = 0
    """Records of the archived topic."""

    def create_topics(self) -> None:
        """Create one topic with an archive, one without, which keeps as much, and one for the others."""
        work = self.work
        # The active segment is never deleted, and neither is one that the rest of which is within the limit.
        kept = str(work.local_bytes // PARTITIONS - 2 * work.segment_bytes)
        segment = {"segment.bytes": str(work.segment_bytes)}
        configs = {
            ARCHIVED: {**segment, "remote.storage.enable": "true", "local.retention.bytes": kept},
            PLAIN: {**segment, "retention.bytes": kept},
            OTHERS: {},
        }
        admin = AdminClient({"bootstrap.servers": self.running.bootstrap})
        new = [NewTopic(name, PARTITIONS, REPLICAS, config=config) for name, config in configs.items()]
        for made in admin.create_topics(new, request_timeout=ANSWER_S).values():
            made.result(ANSWER_S)
        described = admin.describe_topics(TopicCollection([ARCHIVED]))[ARCHIVED].result(ANSWER_S).topic_id
        high, low = described.get_most_significant_bits(), described.get_least_significant_bits()
        name = str(uuid.UUID(int=(high % 2**64) << 64 | low % 2**64))
        data = sorted(self.running.directory.glob("broker-*/data"))
        self.disks = DiskUse([directory / TOPICS / name for directory in data])
        for warmed in (PLAIN, ARCHIVED):
            self._run(_produce(warmed, self.work.round_bytes // 10))

    def produce(self) -> None:
        """Produce with an archive and without one, in turn."""
        rates: dict[str, list[float]] = {ARCHIVED: [], PLAIN: []}
        shares, drains = [], []
        for number in range(self.work.rounds):
            for topic in (PLAIN, ARCHIVED)[number >= PLAIN_ROUNDS_MAX :]:
                before = self.brokers.measure("archive_uploaded_bytes_total")
                outcome = self._run(_produce(topic, self.work.round_bytes))
                rates[topic].append(_mb_s(outcome))
                if topic == ARCHIVED:
                    uploaded = self.brokers.measure("archive_uploaded_bytes_total") - before
                    shares.append(uploaded / self.work.round_bytes)
                    drains.append(self._caught_up())
            self.say(
                f"round {number + 1}: {_last(rates)}, {shares[-1]:.0%} uploaded meanwhile, rest {drains[-1]:.1f} s"
            )
        compared = rates[ARCHIVED][: len(rates[PLAIN])]
        with_archive, without = statistics.median(compared), statistics.median(rates[PLAIN])
        self.figures |= {
            "produce_mb_s": round(with_archive, 1),
            "produce_without_archive_mb_s": round(without, 1),
            "produce_ratio": round(with_archive / without, 3),
            "produce_mb_s_of_all_rounds": [round(rate, 1) for rate in rates[ARCHIVED]],
            "uploaded_meanwhile": round(statistics.median(shares), 3),
            "upload_of_the_rest_s": round(statistics.median(drains), 1),
        }

    def read_cold(self) -> None:
        """Read with one consumer what only the archive has."""
        cold = sum(row["local_start"] for row in self.brokers.partitions(ARCHIVED))
        before = self.brokers.measure("archive_read_bytes_total")
        outcome = self._run(_consume(ARCHIVED, cold), self.distant_load)
        downloaded = self.brokers.measure("archive_read_bytes_total") - before
        self.figures |= {
            "cold_read_mb_s": round(_mb_s(outcome), 1),
            "cold_records": cold,
            "downloaded_share": round(downloaded / cold / RECORD_BYTES, 3),
            "cold_read_broker_cpu_s_per_gb": round(outcome.broker_cpu_s / outcome.records / RECORD_BYTES * 1e9, 2),
        }

    def read_beside_others(self) -> None:
        """Measure the latency of others: alone, beside a consumer of recent records, and beside a cold one."""
        cold = sum(row["local_start"] for row in self.brokers.partitions(ARCHIVED))
        line = LoadLine("others", GeneratorMode.LATENCY, OTHERS, rate=OTHERS_RATE, seconds=OTHERS_S)
        found: dict[str, LineOutcome] = {}
        for number in range(2):
            for name, reader in (
                ("alone", None),
                ("beside_a_reader", self._paced(PLAIN, self.work.local_bytes // 2)),
                ("beside_a_cold_reader", self._paced(ARCHIVED, min(cold * RECORD_BYTES, BESIDE_BYTES_MAX))),
            ):
                with self._repeated(reader) as rates:
                    outcome = self._run(line)
                if number and outcome.ack_ms["p99"] > found[name].ack_ms["p99"]:
                    continue
                found[name] = outcome
                if reader is not None:
                    self.figures[f"reader_{name}_mb_s"] = round(statistics.median(rates), 1) if rates else 0.0
        for name, outcome in found.items():
            self.figures |= {
                f"ack_p99_ms_{name}": outcome.ack_ms["p99"],
                f"end_to_end_p99_ms_{name}": outcome.end_to_end_ms["p99"],
            }
        for what in ("ack", "end_to_end"):
            alone, beside = self.figures[f"{what}_p99_ms_alone"], self.figures[f"{what}_p99_ms_beside_a_cold_reader"]
            assert isinstance(alone, float)
            assert isinstance(beside, float)
            self.figures[f"{what}_p99_ratio"] = round(beside / alone, 2)

    def _paced(self, topic: str, size: int) -> LoadLine:
        rate = int(self.work.reader_mb_s * MB / RECORD_BYTES)
        return replace(_consume(topic, size // RECORD_BYTES), rate=rate)

    def outage(self) -> None:
        """Stop the store, produce, start it again, and wait until everything is archived."""
        line = LoadLine("outage", GeneratorMode.LATENCY, ARCHIVED, rate=OUTAGE_RATE, record_bytes=RECORD_BYTES)
        before = self._run(replace(line, seconds=min(OUTAGE_PIECE_S, self.work.outage_s)))
        self._caught_up()
        self.store.stop()
        began, slowest = time.monotonic(), 0.0
        try:
            while (left_s := self.work.outage_s - (time.monotonic() - began)) > 0:
                outcome = self._run(replace(line, seconds=min(OUTAGE_PIECE_S, max(left_s, 1.0))))
                slowest = max(slowest, outcome.ack_ms["p99"])
            stopped_s = time.monotonic() - began
            backlog = self.brokers.backlog_bytes(ARCHIVED)
        finally:
            self.store.start_again()
        self.figures |= {
            "outage_s": round(stopped_s, 1),
            "outage_ack_p99_ms_before": before.ack_ms["p99"],
            "outage_ack_p99_ms": slowest,
            "outage_backlog_mb": round(backlog / MB, 1),
            "outage_local_mb": [round(used / MB, 1) for used in self.disks.now()],
            "caught_up_s": round(self._caught_up(), 1),
        }

    def read_everything(self) -> None:
        """Read all records that were acknowledged, and wait until the disks have only the local retention."""
        outcome = self._run(_consume(ARCHIVED, self.acknowledged), self.distant_load)
        ends = self._settled_disks()
        self.figures |= {
            "records": self.acknowledged,
            "records_read": outcome.records,
            "whole_read_mb_s": round(_mb_s(outcome), 1),
            "local_mb_at_the_end": [round(used / MB, 1) for used in ends],
            "local_mb_at_most": [round(used / MB, 1) for used in self.disks.most],
            "archived_mb": round(sum(row["bytes"] for row in self.brokers.partitions(ARCHIVED)) / MB, 1),
            "failed_steps": self.brokers.measure("archive_failed_steps_total"),
        }

    def _settled_disks(self) -> list[int]:
        """Return the disk use once it shrinks no further: each broker deletes by itself."""
        used = self.disks.now()
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            time.sleep(5.0)
            before, used = used, self.disks.now()
            if used == before:
                break
        return used

    def _caught_up(self) -> float:
        """Wait until all sealed segments are archived. Return the seconds. Raises NotInTime."""
        began = time.monotonic()
        while self.brokers.backlog_bytes(ARCHIVED):
            if time.monotonic() - began > CAUGHT_UP_S:
                raise NotCaughtUp(f"The archive did not catch up within {CAUGHT_UP_S:.0f} s.")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def _run(self, line: LoadLine, load: Generator | None = None) -> LineOutcome:
        outcome = (load or self.load).run(line, self.running.bootstrap, self.running.pids)
        if line.topic == ARCHIVED and line.mode is not GeneratorMode.CONSUME:
            self.acknowledged = self._end_of_archived()
        return outcome

    def _end_of_archived(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.running.bootstrap})
        wanted = {TopicPartition(ARCHIVED, index): OffsetSpec.latest() for index in range(PARTITIONS)}
        return sum(found.result(ANSWER_S).offset for found in admin.list_offsets(wanted).values())

    @contextmanager
    def _repeated(self, line: LoadLine | None) -> Iterator[list[float]]:
        """Run a reader again and again within the block. Yields its rates so far, in MB/s."""
        rates: list[float] = []
        if line is None:
            yield rates
            return
        closing = threading.Event()

        def repeat() -> None:
            while not closing.is_set():
                try:
                    rates.append(_mb_s(self._run(line, self.distant_load)))
                except LoadFailed as failure:
                    self.say(str(failure))

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield rates
        finally:
            closing.set()
            thread.join()


def _produce(topic: str, size: int) -> LoadLine:
    return LoadLine(f"produce {topic}", GeneratorMode.PRODUCE, topic, size // RECORD_BYTES, RECORD_BYTES)


def _consume(topic: str, records: int) -> LoadLine:
    return LoadLine(f"consume {topic}", GeneratorMode.CONSUME, topic, records, RECORD_BYTES)


def _mb_s(outcome: LineOutcome) -> float:
    return outcome.records * RECORD_BYTES / outcome.seconds / MB


def _last(rates: dict[str, list[float]]) -> str:
    return ", ".join(f"{topic} {values[-1]:.1f} MB/s" for topic, values in rates.items() if values)
