"""Fuzzing of a closed broker: authentication, TLS, tokens and HTTP logins, none of which may let anyone in.

    python -m cordwood.chaos.live.security_fuzz --minutes 60 --seed 7
    python -m cordwood.chaos.live.security_fuzz --attempt 7/12/3

The same seed makes the same attempts; what the broker draws, such as nonces, differs. Exit 1 where the broker let
someone in, failed, grew, or disturbed the bystander.
"""

import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from cordwood.chaos.live.bystander import Observed
from cordwood.chaos.live.intruders.http_attempts import HttpAttempt
from cordwood.chaos.live.intruders.kafka_attempts import KafkaAttempt
from cordwood.chaos.live.intruders.stage import ClosedStage, ClosedTarget
from cordwood.chaos.live.intruders.tls_attempts import TlsAttempt
from cordwood.chaos.live.options import Keep, Seed, workplace
from cordwood.chaos.worker_pool import worker_pool

ATTEMPTS_PER_CHUNK, THREADS = 40, 8
GROWTH_MB_MAX = 48.0
WARM_UP_CHUNKS = 15
NICE = 10
"""Senders yield to the broker and the bystander."""
COMPLAINTS_MAX, COMPLAINT_CHARS_MAX = 10, 1500
SECONDS_PER_MINUTE = 60.0
KINDS = (KafkaAttempt, KafkaAttempt, KafkaAttempt, KafkaAttempt, HttpAttempt, HttpAttempt, TlsAttempt)


class Attempt(Protocol):
    """One connection of an intruder."""

    outcome: str

    def run(self) -> list[str]:
        """Return a sentence for each intrusion. Raises OSError if the broker takes no connections."""


@dataclass(frozen=True, slots=True)
class FuzzVerdict:
    """The attempts by outcome; `complaints` is empty where the broker passed."""

    outcomes: Counter[str]
    observed: Observed
    growth_mb: float
    seconds: float
    complaints: tuple[str, ...]


def attempt_of(name: str, target: ClosedTarget, context: ssl.SSLContext) -> Attempt:
    """Return the attempt of a name SEED/CHUNK/NUMBER."""
    rng = random.Random(name)
    return rng.choice(KINDS)(rng, target, context)


def attempted(target: ClosedTarget, names: list[str]) -> tuple[Counter[str], list[str]]:
    """Make attempts, several at a time. Return their outcomes, and the complaints."""
    context = ssl.create_default_context(cafile=target.ca_file)
    outcomes, complaints = Counter[str](), list[str]()
    left, lock = iter(names), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                name = next(left, None)
            if name is None:
                return
            attempt = attempt_of(name, target, context)
            try:
                found = attempt.run()
            except OSError as error:
                found = [f"the broker takes no connections: {error}"]
            except Exception as error:
                # A mistake in the attempt itself must not pass for one that was refused.
                found = [f"the attempt failed: {type(error).__name__}: {error}"]
            with lock:
                outcomes[attempt.outcome] += 1
                complaints.extend(f"--attempt {name}: {_shortened(sentence)}" for sentence in found)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes, complaints


def _shortened(text: str) -> str:
    return text if len(text) <= COMPLAINT_CHARS_MAX else f"{text[:COMPLAINT_CHARS_MAX]}…"


def fuzz(
    stage: ClosedStage,
    seed: int,
    seconds: float,
    processes: int,
    show: Callable[[int, list[str]], None] = lambda _attempts, _complaints: None,
) -> FuzzVerdict:
    """Make attempts for some seconds, and judge the broker. Memory counts from the first chunks on.

    `show` gets the number of attempts so far, and the complaints.
    """
    began_s = time.monotonic()
    outcomes, complaints = Counter[str](), list[str]()
    chunks, done = _chunks(seed), 0
    with worker_pool(processes, NICE) as senders:
        running = {senders.submit(attempted, stage.target, next(chunks)) for _ in range(processes)}
        while running:
            finished, running = wait(running, 1.0, FIRST_COMPLETED)
            show(outcomes.total(), complaints)
            for chunk in finished:
                counted, found = chunk.result()
                outcomes += counted
                complaints += found
                done += 1
                if done == WARM_UP_CHUNKS:
                    stage.watch.take_baseline()
                is_over = time.monotonic() - began_s > seconds or len(complaints) >= COMPLAINTS_MAX
                if not is_over and not stage.broker.has_ended:
                    running.add(senders.submit(attempted, stage.target, next(chunks)))
    observed, found = stage.verdict(GROWTH_MB_MAX)
    return FuzzVerdict(
        outcomes,
        observed,
        stage.watch.growth_mb,
        time.monotonic() - began_s,
        (*complaints[:COMPLAINTS_MAX], *found),
    )


def fuzzed(place: Path, seed: int, seconds: float, processes: int) -> FuzzVerdict:
    """Fuzz a new broker. A line says once a minute how far it is."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with ClosedStage(place) as stage:
        began_s = shown_s = time.monotonic()
        shown = 0

        def show(attempts: int, complaints: list[str]) -> None:
            nonlocal shown_s, shown
            now_s = time.monotonic()
            if now_s - shown_s >= SECONDS_PER_MINUTE or len(complaints) > shown:
                console.print(
                    f"{(now_s - began_s) / SECONDS_PER_MINUTE:.0f} minutes: {attempts:,} attempts, {len(complaints)}"
                    f" complaints, memory +{stage.watch.growth_mb:.1f} MB",
                    *complaints[shown:],
                    markup=False,
                )
                shown_s, shown = now_s, len(complaints)

        return fuzz(stage, seed, seconds, processes, show)


def repeated(place: Path, names: list[str]) -> FuzzVerdict:
    """Repeat attempts on a new broker."""
    with ClosedStage(place) as stage:
        began_s = time.monotonic()
        outcomes, complaints = attempted(stage.target, names)
        observed, found = stage.verdict(GROWTH_MB_MAX)
        seconds = time.monotonic() - began_s
        return FuzzVerdict(outcomes, observed, stage.watch.growth_mb, seconds, (*complaints, *found))


def _chunks(seed: int) -> Iterator[list[str]]:
    for chunk in count():
        yield [f"{seed}/{chunk}/{number}" for number in range(ATTEMPTS_PER_CHUNK)]


def main(
    minutes: Annotated[float, typer.Option(min=0.05, help="Duration of the fuzzing.")] = 60.0,
    seed: Seed = 1,
    attempt: Annotated[list[str] | None, typer.Option(help="In place of the fuzzing one attempt of it.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Senders at once.")] = 2,
    keep: Keep = None,
) -> None:
    """Start a closed broker and a bystander, try to get in, and report the result."""
    console = Console(highlight=False, soft_wrap=True)
    with workplace(keep) as place:
        if attempt:
            verdict = repeated(place / "broker", attempt)
        else:
            verdict = fuzzed(place / "broker", seed, minutes * SECONDS_PER_MINUTE, processes)
    for outcome, number in sorted(verdict.outcomes.items()):
        console.print(f"  {number:9,} {outcome}", markup=False)
    console.print(
        f"seed {seed}: {verdict.outcomes.total():,} attempts in {verdict.seconds:,.0f} s; memory"
        f" +{verdict.growth_mb:.1f} MB at its largest; the bystander had {verdict.observed.acknowledged:,} records"
        f" acknowledged, {verdict.observed.worst_ack_ms:,.0f} ms at worst."
    )
    for complaint in verdict.complaints:
        console.print(f"FAILED: {complaint}", style="red", markup=False)
    raise typer.Exit(1 if verdict.complaints else 0)


if __name__ == "__main__":
    typer.run(main)
