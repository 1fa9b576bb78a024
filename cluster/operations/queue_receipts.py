"""Receipts of records that an HTTP client has taken from a queue. Pure.

A receipt names the broker that took the record, so that any broker can pass it on. Its secret is random and the same
for all records of one answer: only who got that answer can acknowledge them.
"""

import base64
import binascii
import struct
from typing import NamedTuple, Self
from uuid import UUID

SECRET_BYTES = 16
_LAYOUT = struct.Struct(f">iI16siq{SECRET_BYTES}s")
CHARS = 4 * ((_LAYOUT.size + 2) // 3)
"""The length of a receipt's text."""


class Receipt(NamedTuple):
    """One delivery of one record to an HTTP client."""

    broker_id: int
    member: int
    """The number of the group's member at that broker."""
    topic_id: UUID
    partition: int
    offset: int
    secret: bytes

    @property
    def text(self) -> str:
        """The receipt as clients see it."""
        return base64.urlsafe_b64encode(self.packed).decode()

    @property
    def packed(self) -> bytes:
        """All that the receipt has, in few bytes."""
        return _LAYOUT.pack(self.broker_id, self.member, self.topic_id.bytes, self.partition, self.offset, self.secret)

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the receipt of a text; None if no broker has written it."""
        if len(text) != CHARS:
            return None
        try:
            packed = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            return None
        if len(packed) != _LAYOUT.size:
            return None
        broker_id, member, topic_id, partition, offset, secret = _LAYOUT.unpack(packed)
        if broker_id < 0 or partition < 0 or offset < 0:
            return None
        return cls(broker_id, member, UUID(bytes=topic_id), partition, offset, secret)
