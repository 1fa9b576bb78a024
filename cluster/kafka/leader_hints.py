"""Current leader and node endpoints in the tagged fields of a response (KIP-951), for a client refused by a non-leader.

Without them the client waits for its retry backoff and then requests the topic's metadata.
"""

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cordwood.cluster.kafka.wire import compact_string, uvarint
from cordwood.cluster.metadata.commands import BrokerId, Endpoint
from cordwood.cluster.metadata.image import NO_LEADER, Image

NO_TAGS = b"\x00"
_LEADER = struct.Struct(">iib").pack
_NODE = struct.Struct(">i").pack


class Leader(NamedTuple):
    """A partition's leader, its leader epoch, and its endpoint on the client's listener."""

    broker_id: BrokerId
    epoch: int
    endpoint: Endpoint
    rack: str | None


FindLeader = Callable[[str, int, str], Leader | None]
"""Finds a leader by topic, partition and listener; None if no leader is known that the client can reach."""


def leader_in(image: Image, topic: str, index: int, listener: str) -> Leader | None:
    """Return a partition's leader as in `image`, for FindLeader; None if there is none, or it is fenced."""
    known = image.topics_by_name.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    partition = known.partitions[index]
    broker = image.brokers.get(partition.leader) if partition.leader != NO_LEADER else None
    endpoint = None if broker is None or broker.is_fenced else broker.endpoint(listener)
    if broker is None or endpoint is None:
        return None
    return Leader(broker.id, partition.leader_epoch, endpoint, broker.rack)


def current_leader(leader: Leader | None, tag: int = 0) -> bytes:
    """Encode the tagged fields of a partition: `tag` with a LeaderIdAndEpoch, or no tag."""
    return NO_TAGS if leader is None else _one_tag(_LEADER(leader.broker_id, leader.epoch, 0), tag)


def node_endpoints(leaders: Iterable[Leader]) -> bytes:
    """Encode the tagged fields of a response: tag 0 with the endpoint of each distinct leader, or no tag."""
    nodes = {leader.broker_id: leader for leader in leaders}
    return _one_tag(uvarint(len(nodes) + 1) + b"".join(map(_node, nodes.values()))) if nodes else NO_TAGS


def _node(leader: Leader) -> bytes:
    endpoint, rack = leader.endpoint, leader.rack
    rack_field = b"\x00" if rack is None else compact_string(rack)
    return b"".join((_NODE(leader.broker_id), compact_string(endpoint.host), _NODE(endpoint.port), rack_field, NO_TAGS))


def _one_tag(content: bytes, tag: int = 0) -> bytes:
    return b"\x01" + uvarint(tag) + uvarint(len(content)) + content
