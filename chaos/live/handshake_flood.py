"""Flood of a closed broker with connections that do not authenticate, and the latency of a client that has.

    python -m cordwood.chaos.live.handshake_flood --rounds 4

5,000 connections do nothing, 500 clients fail handshakes in a loop, and a slow handshake begins each second. Exit 1
where a connection costs more than 64 KiB, or the p99 of the other client is twice that of the pauses between.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaError, Message, Producer
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from rich.console import Console

from cordwood.chaos.live.flood.watch import BYTES_PER_MB, resident_mb, withheld_s
from cordwood.chaos.live.intruders import handshake_clients
from cordwood.chaos.live.intruders.stage import MARKER, ClosedStage
from cordwood.chaos.live.options import Keep, Rounds, workplace
from cordwood.chaos.live.security import client_settings, security
from cordwood.client.blocking import connect

IDLE = 5000
KIB_MAX, RATIO_MAX, GROWTH_MB_MAX = 64.0, 2.0, 5000 * 64 * 1024 / 1e6
PROBE_S, PHASE_S, SETTLE_S, ANSWER_S = 0.01, 8.0, 2.0, 60.0
BYTES_PER_KIB = 1024


@dataclass(slots=True)
class Latencies:
    """Latencies in ms, by request."""

    produce: list[float] = field(default_factory=list)
    metadata: list[float] = field(default_factory=list)

    def p99(self) -> tuple[float, float]:
        return p99(self.produce), p99(self.metadata)


@dataclass(frozen=True, slots=True)
class HandshakeFigures:
    """The figures of a run; `complaints` is empty where the broker passed."""

    silent_kib: float
    encrypted_kib: float
    quiet: Latencies
    attacked: Latencies
    rounds: tuple[str, ...]
    failed: int
    complaints: tuple[str, ...]


def p99(values: list[float]) -> float:
    """Return the 99th percentile; 0 of nothing."""
    return sorted(values)[math.ceil(len(values) * 0.99) - 1] if values else 0.0


class LatencyProbe:
    """An authenticated client that measures: records produced with acks=all, and requests for metadata."""

    def __init__(self, address: str) -> None:
        self._producer = Producer({**client_settings(address), "linger.ms": 0, "acks": "all"})
        self._connection = connect(address, ANSWER_S, "probe", security())

    def measure(self, seconds: float, into: Latencies) -> None:
        """Measure for some seconds."""
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=MARKER),),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        end_s = time.monotonic() + seconds
        polling = threading.Thread(target=self._poll, args=(end_s,))
        polling.start()
        while (began_s := time.monotonic()) < end_s:
            self._producer.produce(MARKER, b"probe", on_delivery=_acknowledged(began_s, into))
            self._connection.ask(request)
            into.metadata.append((time.monotonic() - began_s) * 1e3)
            time.sleep(max(0.0, began_s + PROBE_S - time.monotonic()))
        polling.join()
        self._producer.flush(ANSWER_S)

    def _poll(self, end_s: float) -> None:
        while time.monotonic() < end_s:
            self._producer.poll(0.1)


def _acknowledged(began_s: float, into: Latencies) -> Callable[[KafkaError | None, Message], None]:
    def acknowledged(error: KafkaError | None, _message: Message) -> None:
        into.produce.append(math.inf if error is not None else (time.monotonic() - began_s) * 1e3)

    return acknowledged


def flood(stage: ClosedStage, rounds: int, idle: int = IDLE, phase_s: float = PHASE_S) -> HandshakeFigures:
    """Measure the memory of idle connections, then latencies without and with the flood in turn."""
    with _clients(stage) as commands:
        silent_kib = _memory_kib(stage, commands, idle, 0)
        encrypted_kib = _memory_kib(stage, commands, 0, idle)
        probe = LatencyProbe(stage.broker.address)
        probe.measure(SETTLE_S, Latencies())
        quiet, attacked, lines, failed = Latencies(), Latencies(), list[str](), 0
        for number in range(rounds):
            here, there = Latencies(), Latencies()
            starved_s = [_starved_s(stage)]
            probe.measure(phase_s, here)
            starved_s.append(_starved_s(stage))
            _ask(commands, "idle", idle // 2, idle - idle // 2)
            _ask(commands, "attack")
            starved_s.append(_starved_s(stage))
            probe.measure(phase_s, there)
            starved_s.append(_starved_s(stage))
            failed = _ask(commands, "rest")
            time.sleep(SETTLE_S)
            for all_of_them, these in ((quiet, here), (attacked, there)):
                all_of_them.produce += these.produce
                all_of_them.metadata += these.metadata
            lines.append(
                f"round {number + 1}: p99 of produce and metadata {_ms(here)} quiet, {_ms(there)} attacked; the broker"
                f" waited {starved_s[1] - starved_s[0]:.1f} s and {starved_s[3] - starved_s[2]:.1f} s for a processor"
            )
    _, complaints = stage.verdict(GROWTH_MB_MAX)
    for what, kib in (("silent", silent_kib), ("encrypted", encrypted_kib)):
        if kib > KIB_MAX:
            complaints.append(f"a {what} connection costs {kib:.1f} KiB, where {KIB_MAX:g} are allowed")
    for what, before, after in zip(("produce", "metadata"), quiet.p99(), attacked.p99(), strict=True):
        if after >= RATIO_MAX * before:
            complaints.append(f"the p99 of {what} is {after:.1f} ms under attack, and {before:.1f} ms without")
    return HandshakeFigures(silent_kib, encrypted_kib, quiet, attacked, tuple(lines), failed, tuple(complaints))


def _memory_kib(stage: ClosedStage, commands: Connection, silent: int, encrypted: int) -> float:
    """Return the resident memory of one idle connection. The first opening counts only as warm-up."""
    before = resident_mb(stage.broker.pid)
    _ask(commands, "idle", silent, encrypted)
    after = resident_mb(stage.broker.pid)
    _ask(commands, "rest")
    time.sleep(SETTLE_S)
    return (after - before) * BYTES_PER_MB / BYTES_PER_KIB / (silent + encrypted)


def _starved_s(stage: ClosedStage) -> float:
    """Return the time for which the broker has waited for a processor, which other programs had."""
    return withheld_s(stage.broker.pid, stage.broker.pid)


def _ask(commands: Connection, *command: object) -> int:
    commands.send(command)
    failed: int = commands.recv()
    return failed


@contextmanager
def _clients(stage: ClosedStage) -> Iterator[Connection]:
    """Run the clients in a process of their own. Yield the pipe for commands."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=handshake_clients.run, args=(stage.target, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.terminate()
        process.join()


def _ms(latencies: Latencies) -> str:
    return " and ".join(f"{value:.1f} ms" for value in latencies.p99())


def flooded(place: Path, rounds: int, idle: int = IDLE, phase_s: float = PHASE_S) -> HandshakeFigures:
    """Flood a new broker."""
    with ClosedStage(place) as stage:
        return flood(stage, rounds, idle, phase_s)


def main(
    rounds: Rounds = 4,
    idle: Annotated[int, typer.Option(min=1, help="Idle connections.")] = IDLE,
    keep: Keep = None,
) -> None:
    """Start a closed broker, flood it with handshakes, and report the result."""
    console = Console(highlight=False, soft_wrap=True)
    with workplace(keep) as place:
        figures = flooded(place / "broker", rounds, idle)
    for line in figures.rounds:
        console.print(line)
    (quiet, asked), (attacked, asked_then) = figures.quiet.p99(), figures.attacked.p99()
    console.print(
        f"{idle:,} idle connections: {figures.silent_kib:.1f} KiB each without a handshake, {figures.encrypted_kib:.1f}"
        f" KiB with one; {figures.failed:,} failed handshakes; p99 of produce {quiet:.1f} ms, attacked {attacked:.1f}"
        f" ms (x{attacked / quiet:.2f}); of metadata {asked:.1f} ms, attacked {asked_then:.1f} ms"
        f" (x{asked_then / asked:.2f}); {len(figures.attacked.metadata):,} samples under attack."
    )
    for complaint in figures.complaints:
        console.print(f"FAILED: {complaint}", style="red", markup=False)
    raise typer.Exit(1 if figures.complaints else 0)


if __name__ == "__main__":
    typer.run(main)
