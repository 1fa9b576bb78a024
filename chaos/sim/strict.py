"""Strict scenarios: an exception in a callback or task fails the scenario instead of becoming a log line."""

import asyncio
import errno
from collections.abc import Awaitable
from typing import Any, TypeVar

_T = TypeVar("_T")


class ScenarioFailed(Exception):
    """A failure `at_s` simulated seconds after the start. The cause is the first error."""

    def __init__(self, at_s: float) -> None:
        super().__init__(f"after {at_s:.1f} simulated seconds")
        self.at_s = at_s


async def strictly(scenario: Awaitable[_T]) -> _T:
    """Await a scenario. Raises ScenarioFailed from the first exception that only the loop saw, else from its own."""
    loop = asyncio.get_running_loop()
    unheard: list[Exception] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not _is_of_the_dead(error):
            unheard.append(error)

    loop.set_exception_handler(note)
    try:
        result = await scenario
    except Exception as error:
        raise ScenarioFailed(loop.time()) from (unheard[0] if unheard else error)
    if unheard:
        raise ScenarioFailed(loop.time()) from unheard[0]
    return result


def _is_of_the_dead(error: Exception) -> bool:
    """Return whether the error is EBADF: the handles of a dead process are closed."""
    return any(isinstance(known, OSError) and known.errno == errno.EBADF for known in (error, error.__cause__))
