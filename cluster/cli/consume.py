"""`cordwood consume`: records to standard output, up to the current end or without end."""

import base64
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from cordwood.cluster.cli.client import (
    ANSWER_TIMEOUT_S,
    Target,
    admin_client,
    client_settings,
    no_such_topic,
    target_of,
)
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, INT32_MAX, INT64_MAX, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note
from cordwood.cluster.operations.isolation import IsolationLevel
from cordwood.storage.types import TopicPartition

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka import Consumer, KafkaError, Message

    from cordwood.cluster.cli.offsets import Offsets

POLL_S = 0.1
POLL_RECORDS = 1000
SILENCE_S = 30.0
"""How long a consumer without --follow waits for a lost broker."""
NO_TIMESTAMP = 0


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")]
Start = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="earliest|latest|OFFSET|TIMESTAMP",
        help=(
            "The start position. A timestamp is ISO 8601 (UTC unless it has a zone) or @ and milliseconds since"
            " 1970. With --group: used only for partitions without a committed offset."
        ),
    ),
]
Partition = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, max=INT32_MAX, help="Read only this partition; may be repeated."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Wait for new records, like tail -f. Without this option, stop at the current end of the log.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Join this consumer group and commit the offsets that were read."),
]
Isolation = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation",
        help=(
            "read_committed prints records of committed transactions only, up to the first one that is open;"
            " read_uncommitted prints all records."
        ),
    ),
]
Limit = Annotated[
    int | None, typer.Option("--max", "-n", min=1, max=INT64_MAX, help="Stop after this number of records.")
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="Print the key and this separator before each value.")
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object per line. Bytes that are not UTF-8 are in key_base64 and value_base64.",
    ),
]


def consume(
    topic: Topic,
    start: Start = "earliest",
    partition: Partition = None,
    follow: Follow = False,
    group: Group = None,
    isolation: Isolation = IsolationLevel.READ_COMMITTED,
    limit: Limit = None,
    key_separator: KeySeparator = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Print records, one per line."""
    from cordwood.cluster.cli.offsets import parse_position, readable_ends, resolve

    if group and partition:
        raise Failure("--group assigns the partitions itself: leave out --partition.", ExitCode.USAGE)
    position = parse_position(start, "--from")
    renderer = Renderer(sys.stdout.buffer, as_json, key_separator)
    reading = Reading(renderer, follow=follow, limit=limit, in_group=group is not None)
    target = target_of(servers, command_config)
    with admin_client(target) as admin:
        from confluent_kafka import Consumer

        consumer = Consumer({**_settings(target, group, isolation), "error_cb": reading.client_error})
        try:
            names = _partitions(consumer, topic, partition)
            starts, ends = resolve(admin, position, names, isolation), readable_ends(admin, names, isolation)
            reading.begin(consumer, topic, starts, ends)
            reading.run(consumer)
        finally:
            consumer.close()


def _settings(target: Target, group: str | None, isolation: IsolationLevel) -> dict[str, Any]:
    return client_settings(
        target,
        **{
            "group.id": group or "cordwood-consume",
            "isolation.level": isolation.value,
            "enable.auto.commit": group is not None,
            # Only offsets of printed records may be committed.
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        },
    )


def _partitions(consumer: "Consumer", topic: str, chosen: list[int] | None) -> "list[TopicPartition]":
    """Return the partitions to read. Raises Failure if there is no such topic or partition."""
    from confluent_kafka import KafkaError, KafkaException

    metadata = consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise no_such_topic(topic)
        raise KafkaException(metadata.error)
    there = sorted(metadata.partitions)
    for number in chosen or []:
        if number not in metadata.partitions:
            raise Failure(
                f"{topic} has partitions 0 to {len(there) - 1}: there is no partition {number}.", ExitCode.USAGE
            )
    return [TopicPartition(topic, number) for number in there if not chosen or number in chosen]


class Reading:
    """One run over some partitions: the offsets still to read, and the condition to stop."""

    def __init__(self, renderer: "Renderer", *, follow: bool, limit: int | None, in_group: bool) -> None:
        self._renderer = renderer
        self._ends: Offsets = {}
        self._follow = follow
        self._left = limit
        self._in_group = in_group
        self._open: set[TopicPartition] | None = None
        self._lost_at: float | None = None
        self._lost_why = ""

    def begin(self, consumer: "Consumer", topic: str, starts: "Offsets", ends: "Offsets") -> None:
        """Assign all partitions, or subscribe as a member of the group. `ends` bounds the reading, unless `follow`."""
        import confluent_kafka

        self._ends = ends
        if self._in_group:
            consumer.subscribe([topic], on_assign=lambda c, given: self._assigned(c, given, starts))
            return
        wanted = {name: at for name, at in starts.items() if self._follow or at < self._ends[name]}
        self._open = set(wanted)
        consumer.assign([confluent_kafka.TopicPartition(name.topic, name.partition, at) for name, at in wanted.items()])

    def run(self, consumer: "Consumer") -> None:
        """Print records until the run is done. Raises Failure or KafkaException on a permanent error."""
        while not self._is_done():
            wanted = POLL_RECORDS if self._left is None else min(POLL_RECORDS, self._left)
            messages = consumer.consume(wanted, POLL_S)
            printed = [message for message in messages if self._take(message)]
            self._renderer.flush()
            if messages:
                self._lost_at = None
            if printed and self._in_group:
                _store(consumer, printed)
            self._give_up_on_a_lost_broker()

    def client_error(self, error: "KafkaError") -> None:
        """Note an error that belongs to no partition: a callback of the client."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._lost_at is None:
            self._lost_at = time.monotonic()
            self._lost_why = error.str()
            note("cordwood: the connection to the broker is lost; reconnecting")

    def _assigned(self, consumer: "Consumer", given: "list[confluent_kafka.TopicPartition]", starts: "Offsets") -> None:
        committed = consumer.committed(given, timeout=20)
        names = [TopicPartition(part.topic, part.partition) for part in committed]
        for name, part in zip(names, committed, strict=True):
            if part.offset < 0:
                part.offset = starts.get(name, part.offset)
        self._open = {
            name
            for name, part in zip(names, committed, strict=True)
            if self._follow or part.offset < self._ends.get(name, 0)
        }
        consumer.assign(committed)

    def _take(self, message: "Message[bytes, bytes]") -> bool:
        """Print a record that is wanted. Return False for an error, or a record that is not wanted."""
        name = TopicPartition(message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        error = message.error()
        if error is not None:
            self._reached(name, offset, error)
            return False
        if not self._is_wanted(name, offset):
            return False
        self._renderer.record(message)
        if self._left is not None:
            self._left -= 1
        self._settle(name, offset + 1)
        return True

    def _is_wanted(self, name: "TopicPartition", offset: int) -> bool:
        return self._left != 0 and (self._follow or offset < self._ends.get(name, 0))

    def _reached(self, name: "TopicPartition", offset: int, error: "KafkaError") -> None:
        """Settle a partition at its end, also if its last offsets hold no records. Raises KafkaException."""
        from confluent_kafka import KafkaError, KafkaException

        if error.code() == KafkaError._PARTITION_EOF:
            self._settle(name, offset)
        elif not error.retriable() and (self._in_group or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED):
            # The library looks for a coordinator also if the partitions are assigned: that needs no right to a group.
            raise KafkaException(error)

    def _settle(self, name: "TopicPartition", position: int) -> None:
        if self._open is not None and not self._follow and position >= self._ends.get(name, 0):
            self._open.discard(name)

    def _is_done(self) -> bool:
        return self._left == 0 or (not self._follow and self._open is not None and not self._open)

    def _give_up_on_a_lost_broker(self) -> None:
        if self._follow or self._lost_at is None or time.monotonic() - self._lost_at < SILENCE_S:
            return
        raise Failure(
            f"the broker has been unreachable for {SILENCE_S:.0f} s ({self._lost_why}).", ExitCode.UNREACHABLE
        )


def _store(consumer: "Consumer", printed: "list[Message[bytes, bytes]]") -> None:
    """Mark printed records for the next commit."""
    import confluent_kafka

    positions = {(message.topic() or "", message.partition() or 0): (message.offset() or 0) + 1 for message in printed}
    consumer.store_offsets(
        offsets=[confluent_kafka.TopicPartition(*name, offset) for name, offset in positions.items()]
    )


class Renderer:
    """Writer of records to a stream of bytes."""

    def __init__(self, out: BinaryIO, as_json: bool, key_separator: str | None) -> None:
        self._out = out
        self._as_json = as_json
        self._separator = None if key_separator is None else os.fsencode(key_separator)

    def record(self, message: "Message[bytes, bytes]") -> None:
        """Write one record and a newline. A null key or value is written as nothing."""
        if self._as_json:
            self._out.write(json.dumps(fields(message), ensure_ascii=False).encode() + b"\n")
            return
        if self._separator is not None:
            self._out.write((message.key() or b"") + self._separator)
        self._out.write((message.value() or b"") + b"\n")

    def flush(self) -> None:
        """Flush the stream, for the reader at the other end of the pipe."""
        self._out.flush()


def fields(message: "Message[bytes, bytes]") -> dict[str, Any]:
    """Return a record's JSON fields: bytes are text, or base64 in a `_base64` field if they are not UTF-8."""
    timestamp_type, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None if timestamp_type == NO_TIMESTAMP else timestamp,
        **_bytes_field("key", message.key()),
        **_bytes_field("value", message.value()),
        "headers": [{"name": name, **_bytes_field("value", _as_bytes(value))} for name, value in _headers(message)],
    }


def _headers(message: "Message[bytes, bytes]") -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _bytes_field(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
