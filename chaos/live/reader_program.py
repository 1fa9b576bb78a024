"""Program: a reader that logs each record, until the end of the log or the end of its standard input."""

import select
import sys
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from cordwood.chaos.live.ack_log import SentRecord
from cordwood.chaos.live.rows import READ, PolledRecord

ANSWER_S = 20.0
STALLED_S = 60.0
NOTHING_MORE = KafkaError._PARTITION_EOF


def main(
    bootstrap: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    partitions: Annotated[int, typer.Option()],
    rows: Annotated[Path, typer.Option(help="The file for the records.")],
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for librdkafka.")] = None,
    until_end: Annotated[bool, typer.Option(help="End where the log ended at the start.")] = False,
    group: Annotated[bool, typer.Option(help="As a member of a group, instead of every partition by itself.")] = False,
) -> None:
    """Read until the end. Exit with 1 where the end does not come."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": rows.name,
            "auto.offset.reset": "earliest" if group else "error",
            "enable.auto.commit": group,
            "check.crcs": True,
            "log_level": 0,
            # Without a callback, librdkafka returns lost connections as messages, which are not of interest here.
            "error_cb": lambda _error: None,
            **dict(each.split("=", 1) for each in setting or ()),
        }
    )
    is_complete = True
    with rows.open("ab") as file:
        if until_end:
            is_complete = _read_to_the_end(consumer, topic, partitions, file)
        elif group:
            consumer.subscribe([topic])
            _follow(consumer, file)
        else:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            _follow(consumer, file)
    consumer.close()
    if not is_complete:
        raise typer.Exit(1)


def _follow(consumer: Consumer, file: BinaryIO) -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        for message in consumer.consume(1000, 0.1):
            file.write(_row(message))
        file.flush()


def _read_to_the_end(consumer: Consumer, topic: str, partitions: int, file: BinaryIO) -> bool:
    """Read each partition from its start to its current end. Return False where the end does not come."""
    bounds = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        for partition in range(partitions)
    }
    due = {partition: end for partition, (start, end) in bounds.items() if start < end}
    consumer.assign([TopicPartition(topic, partition, bounds[partition][0]) for partition in due])
    moved_at = time.monotonic()
    while due and time.monotonic() - moved_at < STALLED_S:
        for message in consumer.consume(1000, 0.1):
            file.write(_row(message))
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                moved_at = time.monotonic()
                if offset + 1 >= due.get(partition, offset + 2):
                    del due[partition]
    return not due


def _row(message: Message) -> bytes:
    error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
    if error is not None or partition is None or offset is None or value is None:
        typer.echo(f"{time.monotonic():.3f}: partition {partition}: {error}", err=True)
        return READ.pack(*PolledRecord(-1, -1, -1, -1, -1, error.code() if error is not None else KafkaError._BAD_MSG))
    sent = SentRecord.decode(value)
    return READ.pack(*PolledRecord(partition, offset, sent.producer, sent.partition, sent.number, 0))


if __name__ == "__main__":
    typer.run(main)
