"""Program: an idempotent producer that sends until its standard input ends, and logs each answer."""

import random
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, Message, Producer

from cordwood.chaos.live.ack_log import NO_RESPONSE, SentRecord
from cordwood.chaos.live.rows import ANSWERED, Answered

TICK_S = 0.01
QUEUED_MAX = 2000
SETTLE_S = 60.0
PADDING_BYTES_MAX = 2000


def main(
    bootstrap: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    partitions: Annotated[int, typer.Option()],
    number: Annotated[int, typer.Option(help="Which producer this is.")],
    per_second: Annotated[int, typer.Option(help="Records to send.")],
    rows: Annotated[Path, typer.Option(help="The file for the answers.")],
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for librdkafka.")] = None,
) -> None:
    """Send until standard input ends. Print how many sends were never answered."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 0,
            **dict(each.split("=", 1) for each in setting or ()),
        }
    )
    with rows.open("ab") as file:
        sending = _Sending(producer, topic, number, file.write)
        places = _places(random.Random(number), partitions)
        began, sent = time.monotonic(), 0
        while not _is_told_to_stop():
            due = int((time.monotonic() - began) * per_second)
            if len(producer) < QUEUED_MAX:
                sending.send(next(places) for _ in range(min(due - sent, QUEUED_MAX)))
            sent = due
            producer.poll(TICK_S)
            file.flush()
        unanswered = producer.flush(SETTLE_S)
    typer.echo(unanswered)


class _Sending:
    """A producer of numbered records that writes a row for each answer."""

    def __init__(self, producer: Producer, topic: str, number: int, write: Callable[[bytes], object]) -> None:
        self._producer, self._topic, self._number, self._write = producer, topic, number, write
        self._padding = random.Random(number).randbytes(PADDING_BYTES_MAX)
        self._next: dict[int, int] = {}

    def send(self, places: Iterator[tuple[int, int]]) -> None:
        """Send a record for each place: a partition and the bytes of the record's padding."""
        for partition, padding in places:
            number = self._next.get(partition, 0)
            self._next[partition] = number + 1
            self._producer.produce(
                self._topic,
                SentRecord(self._number, partition, number).encode(),
                key=self._padding[:padding],
                partition=partition,
                on_delivery=self._delivered(partition, number, time.monotonic()),
            )

    def _delivered(self, partition: int, number: int, sent_at: float) -> Callable[[KafkaError | None, Message], None]:
        def answered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            code = 0 if error is None else error.code()
            self._write(
                ANSWERED.pack(
                    *Answered(
                        partition, number, NO_RESPONSE if offset is None else offset, code, sent_at, time.monotonic()
                    )
                )
            )

        return answered


def _places(rng: random.Random, partitions: int) -> Iterator[tuple[int, int]]:
    """Yield random partitions and paddings. Lengths vary, so that batches end anywhere within a page of the disk."""
    while True:
        yield rng.randrange(partitions), rng.randrange(PADDING_BYTES_MAX)


def _is_told_to_stop() -> bool:
    """Return whether standard input has ended: the parent process closed it, or is gone."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    typer.run(main)
