"""Garbage collector pauses are measured."""

import gc
import time

from http_fixture import run

from cordwood.cluster.http.watched import Pauses


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
