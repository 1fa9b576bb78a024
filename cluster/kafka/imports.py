"""The imports that follow a broker's start: all handlers and message classes, each in a thread, with pauses.

A broker that imports them at first use has the code of two releases once another one is installed while it runs, and
fails requests while it has no free file descriptor. Before the start they would take as long as the rest of it,
and right after it (`imports.delay.ms`) they take the processor from replicas that catch up.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import HAND_WRITTEN, prepare_requests, prepare_responses
from cordwood.cluster.kafka.registry import KAFKA_APIS, load
from cordwood.replication.tasks import RunBlocking

PAUSE_S = 0.01
"""Shortest pause after an import, during which the event loop waits up to 5 ms for the interpreter's lock."""
PAUSES_PER_IMPORT = 4.0
"""A pause is so many times as long as the import was: together they take a fifth of a processor."""
PAUSE_S_MAX = 1.0
"""Longest pause: an import may have waited for a thread."""
RETRY_S = 5.0

_events = structlog.get_logger("broker")


def imports() -> list[Callable[[], object]]:
    """Return the imports, none of which takes more than some milliseconds. One that has been made takes no time."""
    messages = [
        partial(prepare, key, version)
        for key in KAFKA_APIS
        if key not in HAND_WRITTEN
        for version in reversed(key.versions)
        for prepare in (prepare_requests, prepare_responses)
    ]
    # Messages come first: otherwise a handler's import would include those that its module names.
    return [*messages, *(partial(load, key) for key in ApiKey)]


async def import_all(imports: Iterable[Callable[[], object]], run_blocking: RunBlocking) -> None:
    """Make the imports. One that fails, as without a free file descriptor, is tried again until it succeeds."""
    clock = asyncio.get_running_loop().time
    for one in imports:
        began_s = clock()
        while not await _is_made(one, run_blocking):
            await asyncio.sleep(RETRY_S)
            began_s = clock()
        await asyncio.sleep(min(max(PAUSE_S, PAUSES_PER_IMPORT * (clock() - began_s)), PAUSE_S_MAX))


async def _is_made(one: Callable[[], object], run_blocking: RunBlocking) -> bool:
    try:
        await run_blocking(_make, one)
    except Exception as error:
        _events.warning("import.failed", reason=repr(error), again_in_seconds=RETRY_S)
        return False
    return True


def _make(one: Callable[[], object]) -> None:
    one()
    # A dataclass with slots replaces a class that is garbage from then on: its memory is used for the next import.
    gc.collect(0)
