"""The interface to this broker's members of share groups for HTTP clients, which the HTTP API builds."""

from collections.abc import Sequence
from typing import Protocol

from kio.schema.errors import ErrorCode

from cordwood.cluster.operations.queue_receipts import Receipt


class HttpQueues(Protocol):
    """The records that HTTP clients hold."""

    async def acknowledge(
        self, group_id: str, receipts: Sequence[Receipt | None], acknowledge_type: int
    ) -> tuple[list[ErrorCode], int]:
        """Acknowledge records that this broker handed out. Return the outcomes, and the duration of locks in ms."""
        ...
