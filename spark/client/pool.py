"""The connection pool of a process: Spark reuses its Python workers for further tasks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.client.security import ClientSecurity
from cordwood.spark.client.connection import BrokerConnection, ConnectionFailed
from cordwood.spark.client.settings import Address, ClientSettings

IDLE_PER_BROKER_MAX = 4

_idle: dict[tuple[Address, ClientSecurity], list[BrokerConnection]] = {}
"""Idle connections, which are only for clients that authenticate as the same user."""

# A forked worker would share its parent's sockets and receive its responses.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def leased(address: Address, settings: ClientSettings) -> Iterator[BrokerConnection]:
    """Lease a connection exclusively. Return it to the pool unless it failed or has responses outstanding.

    Raises ConnectionFailed, RequestRefused.
    """
    timeout_s = settings.request_timeout_ms / 1000
    idle = _idle.setdefault((address, settings.security), [])
    connection = idle.pop() if idle else BrokerConnection(address, settings)
    try:
        connection.wait_at_most(timeout_s)
        yield connection
    except BaseException as error:
        connection.close()
        if isinstance(error, ConnectionFailed):
            _drop_idle(address, settings.security)
        raise
    if connection.has_unanswered or len(idle) >= IDLE_PER_BROKER_MAX:
        connection.close()
    else:
        idle.append(connection)


def _drop_idle(address: Address, security: ClientSecurity) -> None:
    """Close the idle connections to a broker. If one connection failed, the others are probably broken, too."""
    idle = _idle.get((address, security), [])
    while idle:
        idle.pop().close()
