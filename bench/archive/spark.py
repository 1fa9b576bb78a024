"""`python -m cordwood.bench.archive.spark`: Spark over archive and tail, beside a consumer and beside brokers alone.

First Spark reads one topic from the store, and through the brokers, in turn. Then a producer writes while segments are
sealed, uploaded, compacted and deleted from the disks, and leaders are killed: each read of Spark has to equal a
consumer's records, row by row. Of a compacted topic the last value of each key is compared.
"""

import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.archive import led_rows
from cordwood.chaos.live.object_servers import Gateway, Moto, ObjectServer, open_server
from cordwood.chaos.live.process import wait_for
from cordwood.chaos.program import run_program
from cordwood.chaos.results import begun, ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND = "bench-archive-spark"
RATED, MOVING, KEYED = "rated", "moving", "keyed"
PARTITIONS, VALUE_BYTES = 4, 1000
SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "archive.compacted.delay.ms": "1000",
}
SMALL_SEGMENT = "262144"
PER_SECOND, KEYS = 1500, 200
ANSWER_S, ARCHIVED_S, SILENCE_S = 60.0, 300.0, 60.0
MB = 10**6

Row = tuple[int, int, bytes | None, bytes | None, int]
"""Partition, offset, key, value, and milliseconds since 1970."""


class Differs(Exception):
    """Spark has read something else than a consumer."""


class Read(NamedTuple):
    """Rows or bytes of one read of Spark, and its seconds."""

    records: int
    seconds: float


def main(
    size: Annotated[int, typer.Option("--bytes", min=10**6, help="Bytes of the topic whose rate is measured.")] = 10**9,
    kills: Annotated[int, typer.Option(min=0, help="Leaders that are killed while Spark reads.")] = 2,
    reads: Annotated[int, typer.Option(min=1, help="Reads from the store, and as many through the brokers.")] = 3,
    store: Annotated[str, typer.Option(help=f"{Gateway.name} or {Moto.name}.")] = Gateway.name,
    recorded: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record the figures as a result file, at a commit.")
    ] = None,
) -> None:
    """Measure and compare. Exits with 1 if Spark has read something else than a consumer."""
    about = {"bytes": size, "kills": kills, "reads": reads, "store": store}
    record = begun(recorded, KIND, about)
    with tempfile.TemporaryDirectory(prefix="archive-spark-") as name:
        place = Path(name)
        with open_server(store, place / "store") as server, _cluster(place, server) as cluster:
            bench = SparkBench(place, server, cluster)
            try:
                figures = bench.rates(size, reads) | bench.equal_to_a_consumer(kills)
            except Differs as difference:
                typer.echo(str(difference), err=True)
                raise typer.Exit(1) from None
            finally:
                bench.spark.stop()
    ended(record, figures)
    typer.echo(json.dumps(about | figures))


class SparkBench:
    """One Spark session beside a running cluster."""

    def __init__(self, place: Path, server: ObjectServer, cluster: LocalCluster) -> None:
        from cordwood.spark.session import local_session

        self._place, self._server, self._cluster = place, server, cluster
        self.spark: SparkSession = local_session(2, {"spark.sql.warehouse.dir": str(place / "warehouse")})
        self._metrics = place / "metrics"
        self._credentials = server.write_credentials(place / "spark-credentials")

    def rates(self, size: int, reads: int) -> dict[str, object]:
        """Read the archived records of a topic from the store and through the brokers, in turn."""
        segment = str(max(size // PARTITIONS // 16, 1 << 20))
        configs = {"remote.storage.enable": "true", "segment.bytes": segment, "local.retention.bytes": segment}
        self._cluster.create_topic(RATED, PARTITIONS, configs)
        self._fill(size // VALUE_BYTES)
        ends = self._archived_ends(RATED)
        border = json.dumps({RATED: {str(partition): end for partition, end in ends.items()}})
        found: dict[bool, list[Read]] = {True: [], False: []}
        bytes_read: dict[str, int] = {}
        for number in range(reads + 1):
            for is_direct in (True, False):
                table = self._table(RATED, border, is_direct=is_direct)
                began = time.perf_counter()
                count, total = table.selectExpr("count(*)", "sum(length(value))").first() or (0, 0)
                read = Read(count, time.perf_counter() - began)
                if (count, total) != (sum(ends.values()), sum(ends.values()) * VALUE_BYTES):
                    raise Differs(f"Spark has read {count} records with {total} bytes of {sum(ends.values())}")
                if is_direct:
                    bytes_read = self._bytes_read()
                # The first read of each kind starts Spark's workers.
                if number:
                    found[is_direct].append(read)
        rates = {
            key: statistics.median(one.records * VALUE_BYTES / one.seconds / MB for one in found[key]) for key in found
        }
        if bytes_read["broker_bytes"]:
            raise Differs(f"{bytes_read['broker_bytes']} bytes of sealed data came from brokers")
        return {
            "records": sum(ends.values()),
            "from_the_store_mb_s": round(rates[True], 1),
            "through_brokers_mb_s": round(rates[False], 1),
            "ratio": round(rates[True] / rates[False], 2),
            **bytes_read,
        }

    def equal_to_a_consumer(self, kills: int) -> dict[str, object]:
        """Read again and again while everything moves, and compare each read with a consumer's."""
        common = {"remote.storage.enable": "true", "segment.bytes": SMALL_SEGMENT}
        self._cluster.create_topic(MOVING, PARTITIONS, {**common, "local.retention.bytes": SMALL_SEGMENT})
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        self._cluster.create_topic(KEYED, PARTITIONS, {**common, **compacted})
        rows = compared = 0
        with self._writing():
            for number in range(kills + 2):
                time.sleep(8.0)
                killed = None
                ends = {topic: self._ends(topic) for topic in (MOVING, KEYED)}
                if 0 < number <= kills:
                    killed = self._cluster.leader_of(MOVING, number % PARTITIONS)
                    threading.Timer(1.0, self._cluster.brokers[killed].kill).start()
                for topic in (MOVING, KEYED):
                    theirs = self._spark_rows(topic, ends[topic])
                    if topic == KEYED:
                        ours = self._consumed(topic, self._ends(topic))
                        theirs, ours = _comparable(theirs, ours, ends[topic])
                    else:
                        ours = self._consumed(topic, ends[topic])
                    _compare(topic, theirs, ours)
                    rows += len(ours)
                compared += 1
                if killed is not None:
                    # The kill may come after a short read.
                    wait_for(lambda killed=killed: not self._cluster.brokers[killed].is_running, ANSWER_S)  # type: ignore[misc]
                    self._cluster.start([killed])
                    self._cluster.wait_in_sync()
        return {
            "compared_reads": 2 * compared,
            "compared_rows": rows,
            "leaders_killed": kills,
            "archived_segments": sum(row["segments"] for row in self._rows(MOVING)),
        }

    def _table(self, topic: str, border: str, *, is_direct: bool) -> "DataFrame":
        options = {"kafka.bootstrap.servers": self._cluster.bootstrap, "subscribe": topic, "endingOffsets": border}
        if is_direct:
            for path in self._metrics.glob("*"):
                path.unlink()
            options |= {
                "archive.url": self._server.url,
                "archive.credentials.file": str(self._credentials),
                "readMetricsPath": str(self._metrics),
            }
        return self.spark.read.format("cordwood").options(**options, startingOffsets="earliest").load()

    def _spark_rows(self, topic: str, ends: dict[int, int]) -> list[Row]:
        border = json.dumps({topic: {str(partition): end for partition, end in ends.items()}})
        found = self._table(topic, border, is_direct=True).selectExpr(
            "partition", "offset", "key", "value", "unix_millis(timestamp) as time"
        )
        return sorted((row[0], row[1], _bytes(row[2]), _bytes(row[3]), row[4]) for row in found.collect())

    def _consumed(self, topic: str, ends: dict[int, int]) -> list[Row]:
        """Return the rows of a consumer. Raises KafkaException, TimeoutError."""
        settings = {
            "bootstrap.servers": self._cluster.bootstrap,
            "group.id": "comparison",
            "auto.offset.reset": "error",
        }
        rows: list[Row] = []
        due = {partition for partition, end in ends.items() if end}
        with closing(Consumer({**settings, "enable.partition.eof": True, "log_level": 0})) as consumer:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in due])
            until = time.monotonic() + SILENCE_S
            while due:
                messages = consumer.consume(10_000, 0.2)
                for message in messages:
                    _take(message, ends, due, rows)
                if messages:
                    until = time.monotonic() + SILENCE_S
                if time.monotonic() > until:
                    raise TimeoutError(f"{topic} could not be read for {SILENCE_S:.0f} s")
        return sorted(rows)

    def _ends(self, topic: str) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        found = admin.list_offsets(wanted).items()
        return {place.partition: result.result(ANSWER_S).offset for place, result in found}

    def _rows(self, topic: str) -> list[Any]:
        rows = [row for id_ in self._cluster.ids for row in led_rows(self._cluster, id_)]
        return [row for row in rows if row["topic"] == topic]

    def _archived_ends(self, topic: str) -> dict[int, int]:
        """Wait until all sealed segments are archived. Return the ends of what is."""

        def are_archived() -> bool:
            rows = self._rows(topic)
            return len(rows) == PARTITIONS and not any(row["backlog_segments"] for row in rows)

        if not wait_for(are_archived, ARCHIVED_S):
            raise TimeoutError(f"{topic} was not archived within {ARCHIVED_S:.0f} s")
        return {row["partition"]: row["end"] for row in self._rows(topic)}

    def _bytes_read(self) -> dict[str, int]:
        found = [json.loads(path.read_text()) for path in self._metrics.glob("*")]
        return {name: sum(one[name] for one in found) for name in ("archive_bytes", "broker_bytes")}

    def _fill(self, records: int) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "linger.ms": 20, "batch.size": 500_000})
        # Random bytes in part: the values of a real topic differ.
        value = random.Random(1).randbytes(VALUE_BYTES)
        for number in range(records):
            while len(producer) > 50_000:
                producer.poll(0.05)
            producer.produce(RATED, value, partition=number % PARTITIONS)
        if producer.flush(ANSWER_S):
            raise TimeoutError("the records were not acknowledged in time")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write to the moving topics within the block."""
        settings = {"bootstrap.servers": self._cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        producer, closing_, rng = Producer({**settings, "log_level": 0}), threading.Event(), random.Random(2)

        def write() -> None:
            number, began = 0, time.monotonic()
            while not closing_.wait(max(began + number / PER_SECOND - time.monotonic(), 0)):
                value = b"%d " % number + rng.randbytes(200)
                key = b"%d" % rng.randrange(KEYS)
                producer.produce(MOVING, key=key, value=value, partition=number % PARTITIONS)
                deleted = rng.random() < 0.1
                producer.produce(KEYED, key=key, value=None if deleted else value, partition=int(key) % PARTITIONS)
                producer.poll(0)
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            closing_.set()
            thread.join()
            producer.flush(ANSWER_S)


def _mb_s(read: Read) -> float:
    return read.records * VALUE_BYTES / read.seconds / MB


def _take(message: Message, ends: dict[int, int], due: set[int], rows: list[Row]) -> None:
    partition, offset, error = message.partition(), message.offset(), message.error()
    assert partition is not None
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        due.discard(partition)
        return
    assert offset is not None
    if offset < ends[partition]:
        rows.append((partition, offset, _bytes(message.key()), _bytes(message.value()), message.timestamp()[1]))
    if offset >= ends[partition] - 1:
        due.discard(partition)


def _comparable(theirs: list[Row], ours: list[Row], ends: dict[int, int]) -> tuple[list[Row], list[Row]]:
    """Return the last records of keys below `ends`, of those that Spark has read and a consumer has read later.

    Without those that the log cleaner may have removed meanwhile: later records, which the consumer has, replace them.
    """
    replaced = {row[2] for row in ours if row[1] >= ends[row[0]]}
    still = _newest([row for row in ours if row[1] < ends[row[0]]])
    kept = set(still)
    return [row for row in _newest(theirs) if row in kept or row[2] not in replaced], still


def _newest(rows: list[Row]) -> list[Row]:
    """Return the last record of each key, without tombstones, which may be removed already."""
    newest = {row[2]: row for row in rows}
    return sorted(row for row in newest.values() if row[3] is not None)


def _compare(topic: str, theirs: list[Row], ours: list[Row]) -> None:
    """Raise Differs with the first difference."""
    if theirs != ours:
        missing, invented = sorted(set(ours) - set(theirs))[:1], sorted(set(theirs) - set(ours))[:1]
        raise Differs(f"{topic}: Spark has {len(theirs)} rows of {len(ours)}; it lacks {missing}, and has {invented}")


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else None if data is None else bytes(data)


@contextmanager
def _cluster(place: Path, server: ObjectServer) -> Iterator[LocalCluster]:
    credentials = server.write_credentials(place / "credentials")
    archive = {"archive.url": server.url, "archive.credentials.file": str(credentials)}
    with LocalCluster(place, settings={**SETTINGS, **archive}, has_http=True) as cluster:
        yield cluster


if __name__ == "__main__":
    run_program(main)
