"""The interface between a connection and its server, and the check of request sizes."""

import struct
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.replication.channel import ReadPiece
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog

if TYPE_CHECKING:
    from cordwood.cluster.kafka.connection import Connection

REQUEST_BYTES_MIN = 8
"""Size of API key, version and correlation id."""
KEY_BYTES = 2
_read_key = struct.Struct(">h").unpack_from


class Owner(Protocol):
    """The server of a connection."""

    keep_alive: KeepAlive

    end_of_tick: EndOfTickScheduler
    read_piece: ReadPiece
    request_bytes_max: int
    other_bytes_max: int
    """Maximum size of a request of any API but Produce."""
    memory: ConnectionMemory

    def opened(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection") -> None: ...

    def damaged(self, damage: DamagedLog) -> None: ...


def why_not(owner: Owner, size: int, arrived: memoryview) -> str | None:
    """Return why a request of `size` bytes is refused, given its first bytes; None if it is not, or not yet known."""
    if not REQUEST_BYTES_MIN <= size <= owner.request_bytes_max:
        return (
            f"a request of {size} bytes: the limits are {REQUEST_BYTES_MIN} to {owner.request_bytes_max}"
            " (socket.request.max.bytes)"
        )
    if size > owner.other_bytes_max and len(arrived) >= KEY_BYTES and (key := _read_key(arrived)[0]) != ApiKey.PRODUCE:
        return f"a request of {size} bytes to API {key}: the limit is {owner.other_bytes_max}"
    return None
