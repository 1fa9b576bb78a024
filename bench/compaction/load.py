"""`python -m cordwood.bench.compaction.load`: what compaction costs one broker, and what it saves its coordinators.

`keys` fills a topic with distinct keys, lets the log cleaner at it, and measures the broker's memory, the cleaner's
rate, and how long others wait for their acknowledgements meanwhile. `commits` writes the offsets of groups
again and again, and measures the size of `__consumer_offsets` and how long a new coordinator takes to load it.
"""

import json
import os
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from crc32c import crc32c
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v7.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v5.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.offset_fetch.v5.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from cordwood.bench.generator import load_generator
from cordwood.bench.growth.wire import CORRELATION_ID, BlockingClient, ProduceFrame, RequestFailed
from cordwood.bench.lines import GeneratorMode, LineOutcome, LoadLine
from cordwood.chaos.live.process import BrokerProcess, free_port, wait_for
from cordwood.chaos.program import run_program
from cordwood.chaos.results import begun, ended
from cordwood.client.codec import encode_request
from cordwood.storage.batch import CRC_COVERS_FROM
from cordwood.storage.records import Record, encode

HOME = Path(__file__).resolve().parent.parent.parent / "build" / "bench"
KIND = "bench-compaction"
KEYED, OTHERS, OFFSETS = "keyed", "others", "__consumer_offsets"
LATER_MS = str(1 << 50)
SEGMENTS, SEGMENT_BYTES_MIN, RECORD_BYTES = 10, 1 << 20, 28
"""Segments of the log of keys; a record with its framing."""
IN_FLIGHT = 8
RECORDS_PER_BATCH, KEY_BYTES, VALUE_BYTES = 8192, 8, 12
ANSWER_S, STARTED_S, CLEANED_S = 60.0, 60.0, 600.0
SAMPLE_S = 0.05
OTHERS_RATE = 1000
MB = 10**6

app = typer.Typer(pretty_exceptions_enable=False, help=__doc__)
Recorded = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Record the figures as a result file, at a commit.")
]


@app.command()
def keys(
    count: Annotated[int, typer.Option("--keys", min=RECORDS_PER_BATCH)] = 20_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each measurement of latency.")] = 12.0,
    recorded: Recorded = None,
) -> None:
    """Measure memory, rate and latency while a log of distinct keys is compacted."""
    about = {"what": "keys", "keys": count, "seconds": seconds}
    record = begun(recorded, KIND, about)
    with _broker({"log.cleaner.backoff.ms": "100"}) as broker:
        figures = broker.compact_keys(count, seconds)
    ended(record, figures)
    typer.echo(json.dumps(about | figures))


@app.command()
def commits(
    count: Annotated[int, typer.Option("--commits", min=1000)] = 10_000_000,
    groups: Annotated[int, typer.Option(min=1)] = 100,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions that each request commits.")] = 100,
    recorded: Recorded = None,
) -> None:
    """Measure the size of the groups' offsets, and how long a coordinator takes to load them."""
    about = {"what": "commits", "commits": count, "groups": groups, "partitions": partitions}
    record = begun(recorded, KIND, about)
    with _broker({}) as broker:
        figures = broker.commit_offsets(count, groups, partitions)
    ended(record, figures)
    typer.echo(json.dumps(about | figures))


class MeasuredBroker:
    """One broker and its directory."""

    def __init__(self, process: BrokerProcess, http: str) -> None:
        self._process, self._http = process, http

    def compact_keys(self, count: int, seconds: float) -> dict[str, object]:
        """Fill a topic, and compact it while others produce."""
        process, load = self._process, load_generator(HOME, _say)
        segment_bytes = max(count * RECORD_BYTES // SEGMENTS, SEGMENT_BYTES_MIN)
        policy = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), "min.cleanable.dirty.ratio": "0"}
        self._create(KEYED, 1, {**policy, "min.compaction.lag.ms": LATER_MS})
        self._create(OTHERS, 6, {})
        with BlockingClient(process.address) as client:
            for batch in keyed_batches(count):
                client.produce(ProduceFrame(KEYED, 0, batch))
        size = self._size_of(KEYED)
        line = LoadLine("others", GeneratorMode.LATENCY, OTHERS, rate=OTHERS_RATE, seconds=seconds)
        alone = load.run(line, process.address, [process.pid])
        before = self._resident_bytes()
        beside = list[LineOutcome]()
        with self._most_resident() as most:
            self._alter(KEYED, {"min.compaction.lag.ms": "0"})
            began = time.monotonic()
            wait_for(lambda: self.measure("log_cleaner_dirty_bytes") > 0, STARTED_S)
            self._while_dirty(lambda: beside.append(load.run(line, process.address, [process.pid])))
            lasted_s = time.monotonic() - began
        work = self.measure("log_cleaner_read_bytes_total") + self.measure("log_cleaner_written_bytes_total")
        busy_s = self.measure("log_cleaner_seconds_total")
        p99s = [outcome.ack_ms["p99"] for outcome in beside]
        return {
            "log_mb": round(size / MB, 1),
            "rounds": self.measure("log_cleaner_rounds_total"),
            "resident_mb_before": round(before / MB, 1),
            "resident_mb_more": round((most[0] - before) / MB, 1),
            "cleaner_mb_s": round(work / busy_s / MB, 1) if busy_s else None,
            "cleaned_s": round(lasted_s, 1),
            "ack_p99_ms_alone": alone.ack_ms["p99"],
            "ack_p99_ms_while_cleaning": p99s,
            "ack_p50_ms": [alone.ack_ms["p50"], *(outcome.ack_ms["p50"] for outcome in beside)],
            "ack_p99_ratio": round(sorted(p99s)[len(p99s) // 2] / alone.ack_ms["p99"], 2) if p99s else None,
        }

    def commit_offsets(self, count: int, groups: int, partitions: int) -> dict[str, object]:
        """Commit offsets, wait for the cleaner, and restart the broker."""
        self._create(KEYED, partitions, {})
        names = [f"group-{number}" for number in range(groups)]
        began = time.monotonic()
        with BlockingClient(self._process.address) as client:
            self._wait_for_groups(client, names)
            self._commit_all(client, [CommitFrame(name, partitions) for name in names], count // partitions)
        committed_s = time.monotonic() - began
        most = self._size_of(OFFSETS)
        least = self._settled_size()
        self._process.stop()
        began = time.monotonic()
        self._process.start()
        started_s = time.monotonic() - began
        with BlockingClient(self._process.address) as client:
            offsets = self._wait_for_groups(client, names)
        loaded_s = time.monotonic() - began
        last = {(count // partitions - 1 - back) % groups: count // partitions - 1 - back for back in range(groups)}
        return {
            "commits_per_s": round(count / committed_s),
            "offsets_mb_at_the_end": round(most / MB, 2),
            "offsets_mb_settled": round(least / MB, 2),
            "started_s": round(started_s, 2),
            "loaded_s_after_the_start": round(loaded_s - started_s, 2),
            "loaded_s": round(loaded_s, 2),
            "wrong_offsets": sum(offsets[names[group]] != number for group, number in last.items()),
        }

    def _commit_all(self, client: BlockingClient, frames: list["CommitFrame"], count: int) -> None:
        """Send each request with its number as the offset, several in flight. Raises RequestFailed."""
        due = bytes(client.exchange(frames[0].at(0)))
        for number in range(count + IN_FLIGHT):
            if number < count:
                client.socket.sendall(frames[number % len(frames)].at(number))
            if number >= IN_FLIGHT and bytes(client.receive_frame()) != due:
                raise RequestFailed(f"OffsetCommit: request {number - IN_FLIGHT} failed")

    def measure(self, name: str) -> float:
        """Return a metric without labels; 0 if there is none."""
        with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=ANSWER_S) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"cordwood_{name} "))

    def _while_dirty(self, work: Callable[[], object]) -> None:
        """Repeat work until the log is compacted. The last repetition may take longer."""
        deadline = time.monotonic() + CLEANED_S
        while self.measure("log_cleaner_dirty_bytes") > 0 and time.monotonic() < deadline:
            work()

    def _wait_for_groups(self, client: BlockingClient, names: list[str]) -> dict[str, int]:
        """Ask for the offsets of each group until its coordinator answers. Return that of the first partition."""
        found: dict[str, int] = {}

        def is_loaded() -> bool:
            for name in names:
                if name not in found:
                    topic = OffsetFetchRequestTopic(name=TopicName(KEYED), partition_indexes=(0,))
                    answer = client.ask(OffsetFetchRequest(group_id=GroupId(name), topics=(topic,)))
                    assert isinstance(answer, OffsetFetchResponse)
                    if answer.error_code is not ErrorCode.none:
                        return False
                    found[name] = answer.topics[0].partitions[0].committed_offset
            return True

        if not wait_for(is_loaded, STARTED_S):
            raise TimeoutError(f"the coordinators of {len(names) - len(found)} groups do not answer")
        return found

    def _settled_size(self) -> int:
        """Return the size of the groups' offsets once the cleaner makes it no smaller."""
        size, deadline = self._size_of(OFFSETS), time.monotonic() + CLEANED_S
        while time.monotonic() < deadline:
            time.sleep(5.0)
            before, size = size, self._size_of(OFFSETS)
            if size == before:
                break
        return size

    def _size_of(self, topic: str) -> int:
        """Return the bytes of a topic's batches."""
        with urllib.request.urlopen(f"http://{self._http}/v1/topics/{topic}/partitions", timeout=ANSWER_S) as answer:
            rows = json.load(answer)["partitions"]
        return sum(replica["size_bytes"] or 0 for row in rows for replica in row["replicas"])

    def _create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self._process.address})
        new = NewTopic(topic, partitions, 1, config=configs)
        admin.create_topics([new], request_timeout=ANSWER_S)[topic].result(ANSWER_S)

    def _alter(self, topic: str, configs: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self._process.address})
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(ANSWER_S)

    def _resident_bytes(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @contextmanager
    def _most_resident(self) -> Iterator[list[int]]:
        """Watch the memory within the block. Yields a list of the most bytes so far."""
        most, closing = [0], threading.Event()

        def watch() -> None:
            while not closing.wait(SAMPLE_S):
                most[0] = max(most[0], self._resident_bytes())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield most
        finally:
            closing.set()
            thread.join()


def keyed_batches(count: int) -> Iterator[bytes]:
    """Yield batches of records with distinct keys: numbers of 8 bytes. The last batch is whole, too."""
    now_ms, mark = int(time.time() * 1000), b"\xa5" * KEY_BYTES
    records = [Record(number, now_ms, mark, bytes(VALUE_BYTES)) for number in range(RECORDS_PER_BATCH)]
    template = bytearray(encode(records))
    places = np.array([found.start() for found in re.finditer(re.escape(mark), bytes(template))])
    assert len(places) == RECORDS_PER_BATCH, "no other bytes look like a key"
    content = np.frombuffer(template, dtype=np.uint8)
    at = places[:, None] + np.arange(KEY_BYTES)
    for first in range(0, count, RECORDS_PER_BATCH):
        numbers = np.arange(first, first + RECORDS_PER_BATCH, dtype=">u8")
        content[at] = numbers.view(np.uint8).reshape(-1, KEY_BYTES)
        template[CRC_COVERS_FROM - 4 : CRC_COVERS_FROM] = crc32c(template[CRC_COVERS_FROM:]).to_bytes(4, "big")
        yield bytes(template)


class CommitFrame:
    """An OffsetCommit frame of a group, with the offset of all its partitions set before each use."""

    def __init__(self, group: str, partitions: int) -> None:
        mark = 0x5A6B7C8D9EAFB0C1
        rows = tuple(
            OffsetCommitRequestPartition(partition_index=i32(index), committed_offset=i64(mark), committed_metadata="")
            for index in range(partitions)
        )
        topic = OffsetCommitRequestTopic(name=TopicName(KEYED), partitions=rows)
        request = OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,))
        self._frame = bytearray(encode_request(request, CORRELATION_ID, None))
        self._places = [found.start() for found in re.finditer(re.escape(mark.to_bytes(8)), bytes(self._frame))]
        assert len(self._places) == partitions, "nothing else looks like an offset"

    def at(self, offset: int) -> bytes:
        """Return the frame that commits `offset`."""
        content = offset.to_bytes(8)
        for place in self._places:
            self._frame[place : place + 8] = content
        return bytes(self._frame)


@contextmanager
def _broker(settings: dict[str, str]) -> Iterator[MeasuredBroker]:
    http = f"127.0.0.1:{free_port()}"
    with (
        tempfile.TemporaryDirectory(prefix="compaction-") as place,
        BrokerProcess(Path(place) / "data", {"http.listen": http, **settings}) as process,
    ):
        yield MeasuredBroker(process, http)


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    run_program(app)
