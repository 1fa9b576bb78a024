"""Object store for programs without an event loop: requests run on a loop of this process, in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

_loops: list[asyncio.AbstractEventLoop] = []
"""The loop of this process, once it is needed. Notebooks have a loop of their own, which must not be used."""

# A forked process has no thread for its parent's loop.
os.register_at_fork(after_in_child=_loops.clear)


def submit(request: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Start a request. Its future also raises what the request raises."""
    if not _loops:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="cordwood-archive", daemon=True).start()
        _loops.append(loop)
    return asyncio.run_coroutine_threadsafe(request, _loops[0])


def wait(request: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a request."""
    return submit(request).result()
