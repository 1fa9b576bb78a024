"""Single bit flips anywhere in a stopped broker's data: `python -m cordwood.chaos.live.flip --flips 20`.

Whatever the byte, `cordwood log verify` must name the file. The broker must start, serve all records that the byte does
not affect, and serve no wrong byte.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live.faults.damage import Flip
from cordwood.chaos.live.process import BrokerEnded, BrokerProcess, run_cordwood

TOPICS = {"flipped": 2, "beside": 1}
RECORDS = 30
RECORD_BYTES = 1000
LOST_MAX = 5
"""The most records in one index interval, which is served as a whole or not at all."""
ZEROS_TRIED = 64
"""The bytes tried in the zeros after the last byte that is not zero."""
ANSWER_S = 20.0
STALLED_S = 1.0
"""The time without a record after which an unreadable offset is skipped."""

app = typer.Typer(pretty_exceptions_enable=False)


class RecordPosition(NamedTuple):
    """A record's topic, partition and offset."""

    topic: str
    partition: int
    offset: int


@app.command()
def main(
    flips: Annotated[int, typer.Option(min=1, help="Number of bits to flip, one at a time.")] = 20,
    seed: Annotated[int, typer.Option(help="Decides which.")] = 1,
    killed: Annotated[bool, typer.Option(help="Stop the broker with SIGKILL before, instead of cleanly.")] = False,
) -> None:
    """Flip single bits in a stopped broker's data, and check that each is found, named and never served.

    Exits with 1 if one is not.
    """
    rng = random.Random(seed)
    anomalies: list[Anomaly] = []
    with tempfile.TemporaryDirectory(prefix="cordwood-flips-") as place:
        pristine = Path(place) / "pristine"
        served = prepare(pristine, is_killed=killed)
        for number in range(flips):
            flip = choose(pristine, rng)
            typer.echo(f"{number + 1} of {flips}: {flip}", err=True)
            anomalies += examine(pristine, Path(place) / "data", flip, served)
    for anomaly in anomalies:
        typer.echo(f"{anomaly.kind}: {anomaly.sentence}")
    typer.echo(f"{flips} flips, {len(anomalies)} anomalies")
    if anomalies:
        raise typer.Exit(1)


def prepare(data: Path, *, is_killed: bool) -> dict[RecordPosition, bytes]:
    """Fill a data directory through a broker, and stop the broker. Return the readable records."""
    broker = BrokerProcess(data)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for created in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
            created.result(ANSWER_S)
        producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 0})
        for number in range(RECORDS):
            for topic, partition in partitions():
                value = f"{topic} {partition} {number} ".encode().ljust(RECORD_BYTES, b".")
                producer.produce(topic, value, partition=partition)
            # One batch per record, so that damage affects few records.
            producer.flush(ANSWER_S)
        _commit_something(broker.address)
        served = read_what_is_served(broker.address, partitions())
        if not is_killed:
            broker.stop()
    return served


def partitions() -> list[tuple[str, int]]:
    return [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]


def choose(data: Path, rng: random.Random) -> Flip:
    """Return a random bit of a random file, each file with the same probability."""
    files = sorted(path for path in data.rglob("*") if path.is_file() and path.stat().st_size)
    path = rng.choice(files)
    content = path.read_bytes()
    tried = min(len(content), len(content.rstrip(b"\0")) + ZEROS_TRIED)
    return Flip(path.relative_to(data), rng.randrange(tried), rng.randrange(8))


def examine(pristine: Path, data: Path, flip: Flip, served: dict[RecordPosition, bytes]) -> Iterator[Anomaly]:
    """Yield the anomalies of a copy of the data after one flip."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(pristine, data)
    flip.apply(data)
    verified = run_cordwood("log", "verify", str(data))
    if verified.returncode != 1 or str(flip.path) not in verified.stdout:
        yield Anomaly("unnamed", f"{flip}: log verify said {verified.stdout.strip()} {verified.stderr.strip()}", (), 1)
    try:
        with BrokerProcess(data) as broker:
            found = read_what_is_served(broker.address, partitions())
    except BrokerEnded as ended:
        yield Anomaly("died", f"{flip}: {ended}", (), 1)
        return
    wrong = sorted(place for place, value in found.items() if served.get(place) != value)
    if wrong:
        yield Anomaly("wrong-byte", f"{flip}: {wrong[0]} is not what was written", (), 1)
    lost = sorted(place for place in served if place not in found)
    if not flip.path.name.endswith(".log") and lost:
        yield Anomaly("not-served", f"{flip}: {len(lost)} sound records, among them {lost[0]}", (), 1)
    elif len({(topic, partition) for topic, partition, _ in lost}) > 1 or len(lost) > LOST_MAX:
        yield Anomaly("not-served", f"{flip}: {len(lost)} records from {lost[0]} to {lost[-1]}, most sound", (), 1)


def _commit_something(address: str) -> None:
    """Commit an offset, so that the internal topic of committed offsets has a record."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "flips"})
    try:
        consumer.commit(offsets=[TopicPartition("flipped", 0, 7)], asynchronous=False)
    finally:
        consumer.close()


def read_what_is_served(address: str, partitions: Sequence[tuple[str, int]]) -> dict[RecordPosition, bytes]:
    """Return every record that a damaged log still serves, by its place: unreadable offsets are skipped."""
    found: dict[RecordPosition, bytes] = {}
    for topic, partition in partitions:
        consumer = Consumer(_consumer_settings(address))
        try:
            _read(consumer, topic, partition, found)
        finally:
            consumer.close()
    return found


def _read(consumer: Consumer, topic: str, partition: int, found: dict[RecordPosition, bytes]) -> None:
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
    offset = start
    consumer.assign([TopicPartition(topic, partition, offset)])
    moved_at = time.monotonic()
    while offset < end:
        for message in consumer.consume(500, 0.1):
            read, value = message.offset(), message.value()
            if message.error() is None and read is not None and value is not None:
                found[RecordPosition(topic, partition, read)] = value
                offset, moved_at = read + 1, time.monotonic()
        if time.monotonic() - moved_at > STALLED_S:
            offset, moved_at = offset + 1, time.monotonic()
            consumer.assign([TopicPartition(topic, partition, offset)])


def _consumer_settings(address: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": address,
        "group.id": "skipping-reader",
        "enable.auto.commit": False,
        "fetch.error.backoff.ms": 10,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "log_level": 0,
    }


if __name__ == "__main__":
    app()
