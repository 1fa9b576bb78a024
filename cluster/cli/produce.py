"""`cordwood produce`: a record for each line of standard input."""

import os
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Protocol

import typer

from cordwood.cluster.cli.client import Target, client_settings, failure_of, talking_to, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note, print_json, progress_bar
from cordwood.cluster.operations.acks import Acks
from cordwood.storage.types import NO_LEADER

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

CHUNK_BYTES = 256 << 10
LINE_BYTES_MAX = 64 << 20
IN_FLIGHT_RECORDS_MAX = 100_000
IN_FLIGHT_KBYTES_MAX = 64 << 10
TOPIC_WAIT_S = 10.0
LAST_CHANCE_S = 10.0
POLL_S = 0.5
STALLED_S = 5.0
"""Time without an acknowledgement after which a note says so. The client alone is silent for `message.timeout.ms`."""
METADATA_WAIT_S = 2.0
STATE_NOTE = re.compile(r" \(after .*\)$")
"""How long the connection was in which state, at the end of an error of librdkafka."""


class Codec(Enum):
    """Compression codecs of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(slots=True)
class Tally:
    """Counts of records sent, delivered and failed."""

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    first_error: "KafkaError | None" = None
    client_error: "KafkaError | None" = None
    """The client's last error, as of a connection, that no acknowledgement has followed."""

    def delivery(self, error: "KafkaError | None", _message: "Message[bytes, bytes]") -> None:
        """Count one record: the client's delivery callback."""
        if error is None:
            self.delivered += 1
            self.client_error = None
            return
        self.failed += 1
        self.first_error = self.first_error or error

    def client_failed(self, error: "KafkaError") -> None:
        """Keep an error that is not of a record: the client's error callback."""
        self.client_error = error

    @property
    def outstanding(self) -> int:
        """The number of records that are neither delivered nor failed."""
        return self.sent - self.delivered - self.failed


class AckWatch:
    """A note on standard error when records wait and none is acknowledged: one for each such stall, with its reason.

    The client goes on: it sends the records once the cluster takes them, as kafka-console-producer does.
    """

    def __init__(self, producer: "Producer", topic: str, tally: Tally) -> None:
        self.producer, self._topic, self._tally = producer, topic, tally
        self._ended, self._moved_s, self._is_noted = 0, time.monotonic(), False

    def poll(self, seconds: float) -> None:
        """Serve the client's callbacks for at most some seconds, and note a stall."""
        self.producer.poll(seconds)
        self._look()

    def flush(self) -> None:
        """Wait until no record is outstanding, and note stalls."""
        while self.producer.flush(POLL_S):
            self._look()

    def _look(self) -> None:
        tally, now_s = self._tally, time.monotonic()
        ended = tally.delivered + tally.failed
        if ended != self._ended or not tally.outstanding:
            self._ended, self._moved_s, self._is_noted = ended, now_s, False
        elif not self._is_noted and now_s - self._moved_s >= STALLED_S:
            self._is_noted = True
            why = "; ".join(self._reasons())
            note(
                f"cordwood: no record was acknowledged for {STALLED_S:.0f} s, {tally.outstanding} wait"
                f"{f' ({why})' if why else ''}. Still trying: see `cordwood status`."
            )

    def _reasons(self) -> Iterator[str]:
        """Yield what the client knows: partitions short of replicas, and its last error."""
        from confluent_kafka import KafkaException

        try:
            found = self.producer.list_topics(self._topic, timeout=METADATA_WAIT_S).topics[self._topic].partitions
        except KafkaException:
            found = {}
        leaderless = sum(each.leader == NO_LEADER for each in found.values())
        short = sum(len(each.isrs) < len(each.replicas) for each in found.values())
        if short:
            without = f", {leaderless} of them without a leader" if leaderless else ""
            yield f"{short} of {len(found)} partitions of {self._topic} are under-replicated{without}"
        if self._tally.client_error is not None:
            yield STATE_NOTE.sub("", self._tally.client_error.str())


class ByteStream(Protocol):
    """A stream that returns what it has, without waiting for more."""

    def read1(self, size: int, /) -> bytes: ...


class PolledInput:
    """An input stream that calls `poll` while it waits for input."""

    def __init__(self, source: BinaryIO, poll: Callable[[float], None]) -> None:
        self._source, self._poll = source, poll

    def read1(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        # `read1` leaves nothing in the stream's buffer, which `select` does not see.
        while _has_descriptor(self._source) and not select.select([self._source], [], [], POLL_S)[0]:
            self._poll(0)
        return self._source.read1(size)  # type: ignore[attr-defined, no-any-return]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="The separator between key and value in each line.")
    ] = None,
    acks: Annotated[
        Acks, typer.Option(help="Required acknowledgements: 0 (none), 1 (the leader) or all (the in-sync replicas).")
    ] = Acks.ALL,
    compression: Annotated[Codec, typer.Option(help="The compression codec of the batches.")] = Codec.NONE,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Send each line of standard input as one record, and print how many were acknowledged.

    With --acks all (the default) the producer is idempotent: retries do not duplicate or reorder records.
    Exits with 1 if any record was not acknowledged.
    """
    if key_separator == "":
        raise Failure("--key-separator must not be empty: give the separator between key and value.", ExitCode.USAGE)
    tally = Tally()
    target = target_of(servers, command_config)
    with talking_to(target):
        from confluent_kafka import Producer

        producer = Producer({**_settings(target, acks, compression), "error_cb": tally.client_failed})
        _require_topic(producer, topic, target)
        watch = AckWatch(producer, topic, tally)
        try:
            _send_all(watch, topic, sys.stdin.buffer, os.fsencode(key_separator) if key_separator else None, tally)
            watch.flush()
        finally:
            # Also after Ctrl-C or an invalid line: wait for the records that were sent before, and count them.
            producer.flush(LAST_CHANCE_S)
            _report(tally, topic, acks, as_json)
    if tally.delivered < tally.sent:
        raise Failure(f"{tally.sent - tally.delivered} records were not acknowledged: {tally.first_error}.")


def lines(source: ByteStream, read: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends, one chunk in memory. `read` gets the bytes of each chunk.

    Raises Failure for a line of more than LINE_BYTES_MAX.
    """
    rest = b""
    while chunk := source.read1(CHUNK_BYTES):
        read(len(chunk))
        pieces = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
        rest = pieces.pop()
        yield from pieces
        if len(rest) > LINE_BYTES_MAX:
            raise Failure(f"a line is longer than {LINE_BYTES_MAX} bytes: check that the input is text.")
    if rest:
        yield rest


def _settings(target: Target, acks: Acks, compression: Codec) -> dict[str, Any]:
    return client_settings(
        target,
        **{
            "acks": acks.value,
            "enable.idempotence": acks is Acks.ALL,
            "compression.type": compression.value,
            "queue.buffering.max.messages": IN_FLIGHT_RECORDS_MAX,
            "queue.buffering.max.kbytes": IN_FLIGHT_KBYTES_MAX,
            # The broker and the topic limit the size, not this client.
            "message.max.bytes": LINE_BYTES_MAX + (1 << 20),
        },
    )


def _require_topic(producer: "Producer", topic: str, target: Target) -> None:
    """Wait until the topic exists: the broker may create a topic when a producer asks. Raises Failure."""
    from confluent_kafka import KafkaError

    from cordwood.cluster.cli.client import no_such_topic

    deadline = time.monotonic() + TOPIC_WAIT_S
    while True:
        error = producer.list_topics(topic, timeout=TOPIC_WAIT_S).topics[topic].error
        if error is None:
            return
        coming = error.code() == KafkaError.LEADER_NOT_AVAILABLE
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise no_such_topic(topic)
        if not coming or time.monotonic() > deadline:
            raise failure_of(error, target)
        producer.poll(0.1)


def _send_all(watch: AckWatch, topic: str, source: BinaryIO, separator: bytes | None, tally: Tally) -> None:
    with progress_bar("producing", _size(source)) as read:
        for number, line in enumerate(lines(PolledInput(source, watch.poll), read), 1):
            key: bytes | None = None
            value = line
            if separator is not None:
                key, found, value = line.partition(separator)
                if not found:
                    raise Failure(f"line {number} has no key separator {os.fsdecode(separator)!r}; it was not sent.")
            _send(watch, topic, key, value, tally)


def _send(watch: AckWatch, topic: str, key: bytes | None, value: bytes, tally: Tally) -> None:
    """Queue one record. Wait while the client's queue is full, so that input is read no faster than it is sent."""
    while True:
        try:
            watch.producer.produce(topic, value, key, on_delivery=tally.delivery)
        except BufferError:
            watch.poll(0.1)
            continue
        tally.sent += 1
        watch.producer.poll(0)
        return


def _has_descriptor(source: BinaryIO) -> bool:
    try:
        source.fileno()
    except OSError:
        return False
    return True


def _size(source: BinaryIO) -> int | None:
    """Return the length of a redirected file; None for a pipe or a terminal."""
    status = os.fstat(source.fileno()) if _has_descriptor(source) else None
    return status.st_size if status and stat.S_ISREG(status.st_mode) else None


def _report(tally: Tally, topic: str, acks: Acks, as_json: bool) -> None:
    asked = acks is not Acks.NONE
    if as_json:
        acknowledged = tally.delivered if asked else None
        failed = tally.sent - tally.delivered
        print_json({"topic": topic, "sent": tally.sent, "acknowledged": acknowledged, "failed": failed})
    elif asked:
        typer.echo(f"{tally.delivered} of {tally.sent} records acknowledged")
    else:
        typer.echo(f"{tally.delivered} of {tally.sent} records sent; --acks 0 asks for no acknowledgement")
