"""Flood of malformed frames on a live broker, which must stay up, bounded in memory, and serve a bystander.

    python -m cordwood.chaos.live.malformed --frames 1000000 --seed 7

The same seed sends the same frames. Exit 1 where the broker failed.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from cordwood.chaos.live.bystander import LiveBystander, Observed
from cordwood.chaos.live.flood.watch import resident_mb
from cordwood.chaos.live.malformed_senders import SenderTally, send_chunk
from cordwood.chaos.live.options import Keep, Seed, workplace
from cordwood.chaos.live.process import BrokerProcess
from cordwood.chaos.live.wild_requests import TOPIC
from cordwood.chaos.worker_pool import begin_worker

FRAMES_PER_CHUNK = 2000
WARM_UP_CHUNKS = 10
GROWTH_MB_MAX = 32.0
ACK_MS_MAX = 10_000.0
SETTLE_S = 3.0
BYSTANDER_TOPIC = "bystander"
# Otherwise random requests would create topics, whose memory would count as growth.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "connections.max.idle.ms": "60000",
}


@dataclass(frozen=True, slots=True)
class MalformedVerdict:
    """The flood's effects on the broker; `complaints` is empty where the broker passed."""

    tally: SenderTally
    observed: Observed
    seconds: float
    resident_mb: tuple[float, float]
    complaints: tuple[str, ...]


def flood(
    port: int, pid: int, frames: int, seed: int, processes: int, taken: Callable[[int], None] = lambda _frames: None
) -> MalformedVerdict:
    """Send the frames and judge the broker. `taken` gets the number of frames that the broker has taken so far.

    The broker's final memory is compared with its largest over the first chunks.
    """
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in (TOPIC, BYSTANDER_TOPIC)]).values():
        created.result(30)
    bystander = LiveBystander(f"127.0.0.1:{port}", BYSTANDER_TOPIC)
    bystander.start()
    begin = time.monotonic()
    tally = SenderTally()
    before = after = 0.0
    complaints: list[str] = []
    with multiprocessing.get_context("spawn").Pool(processes, begin_worker) as senders:
        try:
            for number, sent in enumerate(senders.imap_unordered(send_chunk, _chunks(port, seed, frames))):
                tally += sent
                taken(tally.taken)
                if number < WARM_UP_CHUNKS:
                    before = max(before, resident_mb(pid))
                if tally.taken >= frames:
                    break
        except (OSError, ProcessLookupError) as error:
            complaints.append(f"the broker is gone: {error}")
    try:
        if not complaints:
            # The senders have ended, and the connections that they held open are closed.
            time.sleep(SETTLE_S)
            after = resident_mb(pid)
    except ProcessLookupError as error:
        complaints.append(f"the broker is gone: {error}")
    observed = bystander.stop(is_broker_gone=bool(complaints))
    complaints += [f"the bystander saw: {error}" for error in observed.errors[:5]]
    if after - before > GROWTH_MB_MAX:
        complaints.append(f"the broker grew by {after - before:.1f} MB, where {GROWTH_MB_MAX:.0f} are allowed")
    if observed.worst_ack_ms > ACK_MS_MAX:
        complaints.append(f"the bystander waited {observed.worst_ack_ms:,.0f} ms for one acknowledgement")
    return MalformedVerdict(tally, observed, time.monotonic() - begin, (before, after), tuple(complaints))


def _chunks(port: int, seed: int, frames: int) -> Iterator[tuple[int, str, int]]:
    """Yield more chunks than needed: frames after a fatal one on the same connection do not count."""
    for number in range(20 * (frames // FRAMES_PER_CHUNK + 1)):
        yield port, f"{seed}/{number}", FRAMES_PER_CHUNK


def main(
    frames: Annotated[int, typer.Option(min=1, help="Number of malformed frames to send to the broker.")] = 1_000_000,
    seed: Seed = 1,
    processes: Annotated[int, typer.Option(min=1, help="Senders at once.")] = 2 * (os.cpu_count() or 1),
    keep: Keep = None,
) -> None:
    """Start a broker, flood it with malformed frames, and report the result."""
    console = Console(highlight=False)
    with workplace(keep) as place, BrokerProcess(place / "data", SETTINGS) as broker:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("frames", total=frames)

            def show(taken: int) -> None:
                progress.update(bar, completed=min(taken, frames))

            verdict = flood(broker.port, broker.pid, frames, seed, processes, show)
        broker.stop()
    tally, observed = verdict.tally, verdict.observed
    console.print(
        f"seed {seed}: {tally.taken:,} frames on {tally.connections:,} connections in {verdict.seconds:,.0f} s; "
        f"{tally.closed_by_broker:,} closed by the broker, {tally.stalled:,} left waiting. "
        f"Memory {verdict.resident_mb[0]:.1f} to {verdict.resident_mb[1]:.1f} MB. "
        f"The bystander had {observed.acknowledged:,} records acknowledged, {observed.worst_ack_ms:,.0f} ms at worst."
    )
    for complaint in verdict.complaints:
        console.print(f"FAILED: {complaint}", style="red", markup=False)
    raise typer.Exit(1 if verdict.complaints else 0)


if __name__ == "__main__":
    typer.run(main)
