"""What stops everybody is measured: a busy loop, and the garbage collector."""

import asyncio
import gc
import time

from http_fixture import run

from cordwood.cluster.http.pauses import INTERVAL_S, Pauses


def test_a_loop_that_is_busy_is_late() -> None:
    async def story() -> None:
        pauses = Pauses(time.perf_counter)
        pauses.start()
        time.sleep(INTERVAL_S + 0.2)
        while not pauses.lateness_s.count:
            await asyncio.sleep(0.01)
        pauses.stop()
        assert pauses.lateness_s.sum >= 0.2

    run(story())


def test_collections_are_measured_until_the_end() -> None:
    async def story() -> None:
        callbacks = list(gc.callbacks)
        pauses = Pauses(time.perf_counter)
        pauses.start()
        gc.collect()
        assert pauses.collections_s.count >= 1
        assert pauses.collections_s.sum > 0
        pauses.stop()
        assert gc.callbacks == callbacks

    run(story())
