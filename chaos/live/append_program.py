"""Program: an idempotent producer of the append workload, which sends until its standard input ends."""

import random
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, Message, Producer

from cordwood.chaos.history import content_of
from cordwood.chaos.live.client_rows import NONE, SendKind, SendRow, pack_send
from cordwood.chaos.live.run_end import end_with_run
from cordwood.chaos.live.security import client_settings
from cordwood.chaos.workload import AppendWorkload, PlannedRecord

TICK_S = 0.01
QUEUED_MAX = 2000
SETTLE_S = 60.0
PAYLOAD_BYTES_MAX = 600
NS_PER_MS = 1_000_000
HEADER, HEADER_BYTES = "begins with", 4


def main(
    bootstrap: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    partitions: Annotated[int, typer.Option()],
    rows: Annotated[Path, typer.Option(help="The file for the history of operations.")],
    number: Annotated[int, typer.Option(help="Which producer this is.")],
    seed: Annotated[int, typer.Option(help="Decides what is sent.")],
    per_second: Annotated[int, typer.Option(help="Records to send.")],
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for librdkafka.")] = None,
) -> None:
    """Send until standard input ends. Print how many sends were never answered."""
    end_with_run()
    options = dict(each.split("=", 1) for each in setting or ())
    producer = Producer({**client_settings(bootstrap), "enable.idempotence": True, **options})
    workload = AppendWorkload(
        number, partitions, random.Random(f"{seed}/{number}"), payload_bytes_max=PAYLOAD_BYTES_MAX
    )
    with rows.open("ab") as file:
        began, due = time.monotonic(), 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            before, due = due, int((time.monotonic() - began) * per_second)
            # Records that cannot be queued now are dropped, so that a cluster gets the usual load after an outage.
            for _ in range(min(due - before, QUEUED_MAX - len(producer))):
                _send(producer, topic, workload.next(), file.write)
            producer.poll(TICK_S)
            file.flush()
        unanswered = producer.flush(SETTLE_S)
    typer.echo(unanswered)


def _send(producer: Producer, topic: str, record: PlannedRecord, write: Callable[[bytes], object]) -> None:
    sequence, partition, invoked_ns = record.sequence, record.partition, time.monotonic_ns()
    timestamp, header = time.time_ns() // NS_PER_MS, record.payload[:HEADER_BYTES]
    content = content_of(record.key, ((HEADER, header),), timestamp)

    def answered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        kind, code = (SendKind.ACKNOWLEDGED, 0) if error is None else (SendKind.GIVEN_UP, error.code())
        row = SendRow(
            kind, sequence, partition, NONE if offset is None else offset, code, invoked_ns, time.monotonic_ns()
        )
        write(pack_send(*row))

    write(pack_send(*SendRow(SendKind.INVOKED, sequence, partition, NONE, 0, invoked_ns, invoked_ns, content)))
    producer.produce(
        topic,
        record.payload,
        key=record.key,
        partition=partition,
        on_delivery=answered,
        timestamp=timestamp,
        headers=[(HEADER, header)],
    )


if __name__ == "__main__":
    typer.run(main)
