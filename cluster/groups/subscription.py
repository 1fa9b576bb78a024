"""Consumer subscriptions: the part of the consumer protocol that a coordinator reads, and the topics of all members.

Every version of the subscription begins like version 0 (int16 version, array of topic names). Only that part is read,
as in Kafka's coordinator.
"""

import struct
from collections import Counter
from collections.abc import Iterable

from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.heartbeat import SUBSCRIBED_NAMES_MAX

_VERSION = struct.Struct(">h")
_COUNT = struct.Struct(">i")

NAMES_PER_MEMBER_MAX = 2 * SUBSCRIBED_NAMES_MAX
"""Largest number of topics that are read in the metadata of all protocols of a member. The rest counts as unknown."""
CONSUMER = "consumer"
"""The protocol type of consumers; Connect workers and schema registries have others."""


def topics_of(metadata: bytes, count_max: int = SUBSCRIBED_NAMES_MAX) -> frozenset[str] | None:
    """Return the topics of a subscription; None for bytes that are no subscription, or if they are too many to read."""
    try:
        (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
        position = _VERSION.size + _COUNT.size
        if count > min(count_max, len(metadata) - position):
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


class Subscriptions:
    """The topics that the members of a group have subscribed to, with each protocol that they support."""

    __slots__ = ("_readers", "_unreadable")

    def __init__(self) -> None:
        self._readers: dict[str, dict[str, int]] = {}
        """Numbers of members by topic, by protocol."""
        self._unreadable: Counter[str] = Counter()
        """Numbers of members by protocol for which their metadata is no subscription."""

    def count(self, protocols: Iterable[MemberProtocol], times: int) -> None:
        """Count a member's subscriptions, or stop to count them with `times` -1."""
        names_left = NAMES_PER_MEMBER_MAX
        # Of two protocols with one name the first counts.
        for name, metadata in {protocol.name: protocol.metadata for protocol in reversed([*protocols])}.items():
            topics = topics_of(metadata, min(names_left, SUBSCRIBED_NAMES_MAX))
            if topics is None:
                self._unreadable[name] += times
                if not self._unreadable[name]:
                    del self._unreadable[name]
                continue
            names_left -= len(topics)
            readers = self._readers.setdefault(name, {})
            for topic in topics:
                # Neither `+=` nor `del` of a Counter: each would be a call in Python.
                if count := readers.get(topic, 0) + times:
                    readers[topic] = count
                else:
                    del readers[topic]
            if not readers:
                del self._readers[name]

    def topics(self, protocol: str) -> frozenset[str] | None:
        """Return the topics that any member reads; None if the metadata of a member is no subscription."""
        return None if protocol in self._unreadable else frozenset(self._readers.get(protocol, ()))
