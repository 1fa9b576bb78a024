"""The connections of this process, kept for the next task: Spark uses its Python workers again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.spark.client.connection import BrokerConnection, ConnectionFailed
from cordwood.spark.client.settings import Address, ClientSettings

IDLE_PER_BROKER_MAX = 4

_idle: dict[Address, list[BrokerConnection]] = {}

# A forked worker would share the sockets, and take the answers, of the process that it came from.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def leased(address: Address, settings: ClientSettings) -> Iterator[BrokerConnection]:
    """A connection that nobody else uses meanwhile. It is kept afterwards, unless it failed or has answers to come.

    Raises Trouble, Refused.
    """
    timeout_s = settings.request_timeout_ms / 1000
    idle = _idle.setdefault(address, [])
    connection = idle.pop() if idle else BrokerConnection(address, settings.client_id, timeout_s)
    try:
        connection.wait_at_most(timeout_s)
        yield connection
    except BaseException as error:
        connection.close()
        if isinstance(error, ConnectionFailed):
            _drop_idle(address)
        raise
    if connection.has_unanswered or len(idle) >= IDLE_PER_BROKER_MAX:
        connection.close()
    else:
        idle.append(connection)


def _drop_idle(address: Address) -> None:
    """A broker that has just failed was perhaps restarted: its other connections are no better."""
    idle = _idle.get(address, [])
    while idle:
        idle.pop().close()
