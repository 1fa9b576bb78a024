"""The event-loop watchdog: it measures how long the loop was blocked and logs the request that blocked it."""

import asyncio
import gc
import time
import weakref
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from cordwood.cluster.kafka.request_measures import Held, Measured, RequestMeasures
from cordwood.cluster.kafka.watchdog import INTERVAL_S, STALL_S, Watchdog

BUSY_S = 0.3
STILL_S = INTERVAL_S + BUSY_S
CULPRIT = Held(0.8 * BUSY_S, "DESCRIBE_CONFIGS", "10.0.0.7", "inspector", 42)


class Cancelled(Exception):
    """An error of the test."""


def watch(*held: Held) -> tuple[Watchdog, list[MutableMapping[str, Any]]]:
    """Return a watchdog that fired after the loop was blocked with these requests held, and its log lines."""
    now_s = 0.0

    async def story() -> Watchdog:
        nonlocal now_s
        requests = RequestMeasures(lambda: now_s)
        watchdog = Watchdog(lambda: now_s, requests)
        watchdog.start()
        now_s += STILL_S
        for each in held:
            requests.note_held(each)
        while not watchdog.lateness_s.count:
            await asyncio.sleep(0.01)
        watchdog.stop()
        return watchdog

    with capture_logs() as logged:
        return asyncio.run(story()), logged


def test_a_loop_that_stands_still_is_late_and_counts_as_a_stall() -> None:
    watchdog, logged = watch()
    assert watchdog.stalls == 1
    assert watchdog.lateness_s.sum >= BUSY_S
    (line,) = logged
    assert (line["event"], line["log_level"]) == ("loop.stalled", "warning")
    assert line["seconds"] >= BUSY_S
    assert "client" not in line


def test_the_request_that_held_the_loop_is_named() -> None:
    _, (line,) = watch(CULPRIT)
    named = (line["api"], line["client"], line["client_id"], line["request"])
    assert named == ("DESCRIBE_CONFIGS", "10.0.0.7", "inspector", 42)


def test_a_request_that_was_quick_is_not_blamed() -> None:
    _, (line,) = watch(CULPRIT._replace(seconds=STALL_S / 100))
    assert "client" not in line


def test_what_held_the_loop_before_is_forgotten_once_it_was_asked_for() -> None:
    requests = RequestMeasures(time.perf_counter)
    requests.note_held(CULPRIT)
    assert requests.longest_held() == CULPRIT
    assert requests.longest_held() is None


def test_each_step_of_a_coroutine_is_measured_by_itself() -> None:
    now = 0.0
    steps: list[float] = []

    async def work() -> str:
        nonlocal now
        now += 3.0
        await asyncio.sleep(0)
        now += 5.0
        await asyncio.sleep(0)
        return "done"

    async def story() -> object:
        return await Measured(work(), lambda: now, steps.append)

    assert asyncio.run(story()) == "done"
    assert steps == [3.0, 5.0, 0.0]


def test_a_measured_coroutine_fails_and_is_cancelled_as_any_other() -> None:
    steps: list[float] = []
    ended: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("it failed")

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def story() -> None:
        with pytest.raises(ValueError, match="it failed"):
            await Measured(fail(), time.perf_counter, steps.append)

        async def waiting() -> None:
            await Measured(wait(), time.perf_counter, steps.append)

        task = asyncio.ensure_future(waiting())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert ended == ["cancelled"]
    assert len(steps) == 4


def test_an_error_in_measured_work_is_freed_with_its_last_reference() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)

    def cancelled() -> "weakref.ref[Cancelled]":
        measured = Measured(fail(), lambda: 0.0, lambda _: None)
        measured.send(None)
        try:
            measured.throw(Cancelled())
        except Cancelled as error:
            return weakref.ref(error)
        raise AssertionError("it was not raised")

    gc.disable()
    try:
        assert cancelled()() is None
    finally:
        gc.enable()
