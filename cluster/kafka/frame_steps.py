"""The rest of a large frame between brokers, in steps of the event loop; the connection's next frame waits for it."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.kafka.connection import Connection
from cordwood.replication.frames import MalformedFrame
from cordwood.replication.tasks import Tasks, spread
from cordwood.storage.steps import Steps

OnMalformed = Callable[[Connection, MalformedFrame], None]
"""Closes the connection that the frame came from."""


def handle_rest(steps: Steps[None], connection: Connection, tasks: Tasks, on_malformed: OnMalformed) -> None:
    """Run the steps in a task. Until their end the frame stays as it is, and no other one is handled."""
    connection.freeze()
    handling = tasks.spawn(_handle(steps, connection, on_malformed))
    # Also if the task is cancelled before it begins: the frame ends with what its steps have to do at their end.
    handling.add_done_callback(lambda _: steps.close())


async def _handle(steps: Steps[None], connection: Connection, on_malformed: OnMalformed) -> None:
    try:
        await spread(steps)
    except asyncio.CancelledError:
        # The next frames follow what is missing now: a compacted log accepts the gap.
        connection.close()
        raise
    except MalformedFrame as malformed:
        on_malformed(connection, malformed)
    except Exception as error:
        # A bug, which the task reports. The broker lacks what the rest would have done: it connects anew.
        connection.close(f"a frame of a broker failed: {error!r}")
        raise
    finally:
        connection.thaw(shrinks=True)
