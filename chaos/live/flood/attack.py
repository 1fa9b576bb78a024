"""Attacks on a cluster, from processes of low priority: a scenario, a flood, or one shot."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from cordwood.chaos.live.flood.aim import FloodTarget
from cordwood.chaos.live.flood.scenarios import SCENARIOS, Served
from cordwood.chaos.live.flood.shots import Shot, ShotRange, announced, send_chunk
from cordwood.chaos.worker_pool import worker_pool

NICE = 10
"""The niceness of the senders, so that they do not take processor time from the brokers."""
SHOTS_PER_CHUNK = 10
SCENARIO_S = 120.0
PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class SentShots:
    """The shots of an attack, and its complaints."""

    shots: tuple[Shot, ...] = ()
    complaints: tuple[str, ...] = ()
    remark: str = ""


def scenario(aims: tuple[FloodTarget, ...], name: str) -> SentShots:
    """Run one scenario against the first broker."""
    with worker_pool(1, NICE) as attacker:
        played = attacker.submit(_play, name, aims[0])
        try:
            return played.result(SCENARIO_S)
        except TimeoutError:
            return SentShots(complaints=(f"{name} did not end within {SCENARIO_S:.0f} s",))


def shot(aims: tuple[FloodTarget, ...], name: str) -> SentShots:
    """Repeat one shot of a flood."""
    seed, number, index = map(int, name.split("/"))
    with worker_pool(1, NICE) as attacker:
        return SentShots(
            tuple(attacker.submit(send_chunk, _chunk(aims, seed, number, range(index, index + 1))).result())
        )


def flood(
    aims: tuple[FloodTarget, ...],
    seed: int,
    seconds: float,
    processes: int,
    is_over: Callable[[], bool],
    sent: Callable[[], None],
) -> SentShots:
    """Send shots for `seconds`, or until `is_over` returns true. `sent` is called during the flood.

    The time begins once the attackers' processes run: on a loaded machine they need seconds to start.
    """
    shots: list[Shot] = []
    with worker_pool(processes, NICE) as attackers:
        wait([attackers.submit(_started) for _ in range(processes)])
        end_s = time.monotonic() + seconds
        chunks = _chunks(aims, seed, end_s)
        under_way: set[Future[list[Shot]]] = {attackers.submit(send_chunk, next(chunks)) for _ in range(processes)}
        while under_way:
            ended, under_way = wait(under_way, PATIENCE_S, FIRST_COMPLETED)
            for chunk in ended:
                shots += chunk.result()
                if time.monotonic() < end_s and not is_over():
                    under_way.add(attackers.submit(send_chunk, next(chunks)))
            sent()
    return SentShots(tuple(shots))


def _started() -> None:
    """Return once the process has loaded this module, with all that it sends."""


def _chunk(aims: tuple[FloodTarget, ...], seed: int, number: int, shots: range) -> ShotRange:
    return ShotRange(aims, announced(aims[0].address), seed, number, shots)


def _chunks(aims: tuple[FloodTarget, ...], seed: int, end_s: float) -> Iterator[ShotRange]:
    apis = announced(aims[0].address)
    number = 0
    while True:
        yield ShotRange(aims, apis, seed, number, range(SHOTS_PER_CHUNK), end_s)
        number += 1


def _play(name: str, aim: FloodTarget) -> SentShots:
    """Play a scenario; runs in its own process."""
    try:
        SCENARIOS[name](aim)
    except Served as served:
        return SentShots(complaints=(str(served),))
    except OSError as refused:
        # A broker may close the connection of a client that asks for too much.
        return SentShots(remark=f"not answered to the end: {refused}")
    return SentShots()
