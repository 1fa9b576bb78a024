"""Program: a consumer, by assignment or as a group member that commits, which logs each poll, assignment and error."""

import math
import random
import select
import sys
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cordwood.chaos import transfers
from cordwood.chaos.history import SEQUENCE_BITS, content_of, value_of
from cordwood.chaos.live.client_rows import NONE, PollKind, PollRow, pack_poll
from cordwood.chaos.live.run_end import end_with_run
from cordwood.chaos.live.security import client_settings
from cordwood.chaos.workload import decode

POLL_S = 0.1
POLLED_MAX = 1000
COMMIT_EVERY_S = 1.0


def main(
    bootstrap: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    partitions: Annotated[int, typer.Option()],
    rows: Annotated[Path, typer.Option(help="The file for the history of operations.")],
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group instead of reading every partition.")
    ] = None,
    life: Annotated[float, typer.Option(help="The mean seconds until a member joins again; 0 for never.")] = 0.0,
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for librdkafka.")] = None,
) -> None:
    """Read until standard input ends."""
    end_with_run()
    config = {
        **client_settings(bootstrap),
        "group.id": group or rows.name,
        # A reader by assignment begins at offset 0, so an offset reset is an error.
        "auto.offset.reset": "earliest" if group else "error",
        "enable.auto.commit": False,
        "check.crcs": True,
        "enable.partition.eof": True,
        # Without a callback, librdkafka returns lost connections as messages, which are not of interest here.
        "error_cb": lambda _error: None,
        **dict(each.split("=", 1) for each in setting or ()),
    }
    rng, assignments = random.Random(rows.name), 0
    with rows.open("ab") as file:
        while not _is_over():
            consumer = Consumer(config)
            reader = _Reader(consumer, file, assignments, is_member=group is not None)
            if group:
                consumer.subscribe([topic], on_assign=reader.assigned, on_revoke=reader.revoked, on_lost=reader.lost)
            else:
                places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
                consumer.assign(places)
                reader.began(places)
            ends_at = time.monotonic() + rng.expovariate(1 / life) if life else math.inf
            while time.monotonic() < ends_at and not reader.is_stuck and not _is_over():
                reader.poll()
                file.flush()
            consumer.close()
            file.flush()
            assignments = reader.assignments


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


class _Reader:
    """A consumer that commits at an interval, and writes a row for each event."""

    def __init__(self, consumer: Consumer, file: BinaryIO, assignments: int, *, is_member: bool) -> None:
        """`assignments` is the number of those of the program's consumers before this one."""
        self._consumer, self._file, self._is_member = consumer, file, is_member
        self._batches, self.assignments = 0, assignments
        self.is_stuck = False
        """Whether it has to join again: librdkafka 2.16 does not repeat an OffsetFetch that was answered with
        NOT_COORDINATOR, and never reads the partitions that it was assigned (`rd_kafka_assignment_apply_offsets`)."""
        self._next: dict[tuple[str, int], int] = {}
        """The offset after the last record of each partition, for the next commit."""
        self._ends: dict[int, int] = {}
        """By partition: the offset after the last record, or after the markers that follow it."""
        self._committed_at = time.monotonic()

    def poll(self) -> None:
        """Poll once. Write a row for each record, and the watermark of each partition that had records."""
        messages = self._consumer.consume(POLLED_MAX, POLL_S)
        self._batches += 1
        places = {place for place in map(self._take, messages) if place}
        for topic, partition in places:
            start, watermark = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
            if start >= 0 and watermark >= 0:
                self._write(PollKind.WATERMARK, partition, watermark, start)
        if self._is_member and time.monotonic() >= self._committed_at + COMMIT_EVERY_S:
            self._commit()

    def began(self, places: list[TopicPartition]) -> None:
        """Write the start of an assignment, whatever the consumer read before. It may add nothing."""
        self.assignments += bool(places)
        for place in places:
            self._write(PollKind.ASSIGNED, place.partition, place.offset, number=self.assignments)

    def assigned(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """Write the partitions that the group assigned."""
        self.began(places)

    def revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """Commit before the group revokes the partitions, so that the next member continues at the end of this one."""
        for place in places:
            self._write(PollKind.REVOKED, place.partition, NONE)
        self._commit()
        self._next.clear()

    def lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """Forget uncommitted offsets: the group has assigned the partitions to another member already."""
        for place in places:
            self._write(PollKind.LOST, place.partition, NONE)
        self._next.clear()

    def _take(self, message: Message) -> tuple[str, int] | None:
        topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._reached(partition, offset)
            return None
        if error is not None or topic is None or partition is None or offset is None:
            code = error.code() if error is not None else KafkaError._BAD_MSG
            typer.echo(f"{time.monotonic():.3f}: partition {partition}: {error}", err=True)
            self._write(PollKind.REPORTED_ERROR, NONE, NONE, code)
            self.is_stuck |= code == KafkaError.NOT_COORDINATOR
            return None
        value = decode(message.value())
        self._write(PollKind.POLLED, partition, offset, value, content=content_of_message(message))
        self._take_transfer(message, value)
        self._next[topic, partition] = self._ends[partition] = offset + 1
        return topic, partition

    def _reached(self, partition: int | None, end: int | None) -> None:
        """Write the end of what may be read where it is not the end of the last record."""
        if partition is not None and end is not None and self._ends.get(partition, 0) != end:
            self._ends[partition] = end
            self._write(PollKind.REACHED_END, partition, end)

    def _take_transfer(self, message: Message, value: int) -> None:
        """Write the entry of a transfer, where the record has one."""
        data = dict(_headers(message)).get(transfers.HEADER)
        if data is not None and (entry := transfers.decode(data)) is not None and value >= 0:
            transaction = value_of(value >> SEQUENCE_BITS, entry.transaction)
            self._write(PollKind.TRANSFER, entry.account, entry.balance, transaction, content=entry.amount)

    def _commit(self) -> None:
        if self._next:
            places = [TopicPartition(*place, offset) for place, offset in self._next.items()]
            try:
                self._consumer.commit(offsets=places, asynchronous=False)
                kind = PollKind.COMMITTED
            except KafkaException:
                kind = PollKind.COMMIT_UNSURE
            for place in places:
                self._write(kind, place.partition, place.offset, number=self.assignments)
            if kind is PollKind.COMMITTED:
                self._next.clear()
        self._committed_at = time.monotonic()

    def _write(
        self,
        kind: PollKind,
        partition: int,
        offset: int,
        value: int = NONE,
        number: int | None = None,
        content: int = NONE,
    ) -> None:
        batch = self._batches if number is None else number
        self._file.write(pack_poll(*PollRow(kind, partition, offset, value, batch, time.monotonic_ns(), content)))


def content_of_message(message: Message) -> int:
    """Return the number of all but the value; NONE where the broker has set the timestamp."""
    kind, timestamp = message.timestamp()
    if kind != TIMESTAMP_CREATE_TIME:
        return NONE
    return content_of(_bytes(message.key()), _headers(message), timestamp)


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers = message.headers() or []
    rows = headers.items() if isinstance(headers, dict) else headers
    return [(name, _bytes(value)) for name, value in rows]


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


if __name__ == "__main__":
    typer.run(main)
