"""Program: a member of a share group (KIP-932), which logs what it gets and how it acknowledges it.

It closes its consumer from time to time and joins again, sometimes without an acknowledgement of what it holds.
"""

import random
import select
import sys
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from cordwood.chaos.live.client_rows import NONE, ShareKind, ShareRow, pack_share
from cordwood.chaos.live.consumer_program import content_of_message
from cordwood.chaos.live.run_end import end_with_run
from cordwood.chaos.live.security import client_settings
from cordwood.chaos.workload import decode

POLL_S = 0.1
ANSWER_S = 10.0
RELEASED_SHARE, REJECTED_SHARE = 0.05, 0.02
HELD_SHARE = 0.5
"""The share of lives at whose end the member closes its consumer with records that it has not acknowledged."""
JOINED_S = 15.0
"""A member without records is taken for joined at the end of the run after so long."""


def main(
    bootstrap: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    partitions: Annotated[int, typer.Option()],
    rows: Annotated[Path, typer.Option(help="The file for the history of operations.")],
    group: Annotated[str, typer.Option(help="The share group.")],
    life: Annotated[float, typer.Option(help="The mean seconds until the member joins again.")] = 20.0,
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for librdkafka.")] = None,
) -> None:
    """Read until standard input ends."""
    del partitions
    end_with_run()
    config = {
        **client_settings(bootstrap),
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "check.crcs": True,
        # Without a callback, librdkafka returns lost connections as messages, which are not of interest here.
        "error_cb": lambda _error: None,
        **dict(each.split("=", 1) for each in setting or ()),
    }
    rng = random.Random(rows.name)
    with rows.open("ab") as file:
        while not _is_over():
            member = _Member(ShareConsumer(config), topic, file, rng)
            ends_at = time.monotonic() + rng.expovariate(1 / life)
            while not _is_over() and (time.monotonic() < ends_at or not member.has_joined):
                member.poll()
                file.flush()
            joined_at = time.monotonic() + JOINED_S
            while not member.has_joined and time.monotonic() < joined_at:
                member.poll()
            member.end()
            file.flush()


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


class _Member:
    """One membership: a share consumer that acknowledges every record by itself."""

    def __init__(self, consumer: ShareConsumer, topic: str, file: BinaryIO, rng: random.Random) -> None:
        self._consumer, self._file, self._rng = consumer, file, rng
        consumer.subscribe([topic])
        self._asked_ns = time.monotonic_ns()
        """Before the fetch that brings the next records may have been sent."""
        self._held: list[Message] = []
        self.has_joined = False
        """Whether it was given a record. librdkafka 2.16 may wait for ever in the close of a share consumer that does
        not yet know the topic of its first assignment: the assignment begins when the metadata come, and never ends."""
        self._write(ShareKind.JOINED, NONE, NONE, self._asked_ns)

    def poll(self) -> None:
        """Poll once, and acknowledge what came."""
        began_ns = time.monotonic_ns()
        try:
            self._take(list(self._consumer.poll(POLL_S)), began_ns)
        except KafkaException as failure:
            typer.echo(f"{time.monotonic():.3f}: {failure}", err=True)
        if self._held:
            self._acknowledge()

    def _take(self, messages: list[Message], began_ns: int) -> None:
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if message.error() is not None or partition is None or offset is None:
                typer.echo(f"{time.monotonic():.3f}: {message.error()}", err=True)
                continue
            self._held.append(message)
            self.has_joined = True
            self._write(
                ShareKind.ACQUIRED,
                partition,
                offset,
                self._asked_ns,
                value=decode(message.value()),
                number=message.delivery_count() or NONE,
                content=content_of_message(message),
            )
        if messages:
            # Fetches from other brokers may have been under way since this poll began.
            self._asked_ns = began_ns

    def _acknowledge(self) -> None:
        """Accept, release or reject what is held, and wait for the answers."""
        decided: list[tuple[int, int, AcknowledgeType]] = []
        for message in self._held:
            dice = self._rng.random()
            kind = (
                AcknowledgeType.RELEASE
                if dice < RELEASED_SHARE
                else AcknowledgeType.REJECT
                if dice < RELEASED_SHARE + REJECTED_SHARE
                else AcknowledgeType.ACCEPT
            )
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "it was taken"
            assert offset is not None, "it was taken"
            self._consumer.acknowledge(message, kind)
            decided.append((partition, offset, kind))
        self._held.clear()
        invoked_ns, outcomes = time.monotonic_ns(), dict[int, int]()
        try:
            for place, failure in self._consumer.commit_sync(ANSWER_S).items():
                outcomes[place.partition] = 0 if failure is None else failure.args[0].code()
        except KafkaException as failure:
            typer.echo(f"{time.monotonic():.3f}: {failure}", err=True)
        for partition, offset, kind in decided:
            self._write(
                ShareKind.ACKNOWLEDGED,
                partition,
                offset,
                invoked_ns,
                value=outcomes.get(partition, NONE),
                number=int(kind),
            )

    def end(self) -> None:
        """Leave the group, sometimes with records that are held."""
        began_ns = time.monotonic_ns()
        try:
            if self._rng.random() < HELD_SHARE:
                self._take(list(self._consumer.poll(POLL_S)), began_ns)
            self._consumer.close()
        except KafkaException as failure:
            typer.echo(f"{time.monotonic():.3f}: {failure}", err=True)

    def _write(
        self,
        kind: ShareKind,
        partition: int,
        offset: int,
        invoked_ns: int,
        *,
        value: int = NONE,
        number: int = NONE,
        content: int = NONE,
    ) -> None:
        row = ShareRow(kind, partition, offset, value, number, invoked_ns, time.monotonic_ns(), content)
        self._file.write(pack_share(*row))


if __name__ == "__main__":
    typer.run(main)
