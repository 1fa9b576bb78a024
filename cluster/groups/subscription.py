"""Consumer subscriptions: the part of the consumer protocol that a coordinator reads.

Every version of the subscription begins like version 0 (int16 version, array of topic names). Only that part is read,
as in Kafka's coordinator.
"""

import struct

_VERSION = struct.Struct(">h")
_COUNT = struct.Struct(">i")

CONSUMER = "consumer"
"""The protocol type of consumers; Connect workers and schema registries have others."""


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription; None for bytes that are no subscription."""
    try:
        (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
        position = _VERSION.size + _COUNT.size
        if count > len(metadata) - position:
            return None
        topics = set()
        for _ in range(count):
            (length,) = _VERSION.unpack_from(metadata, position)
            position += _VERSION.size
            if not 0 <= length <= len(metadata) - position:
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
