"""One broker's own view of the cluster: Metadata and DescribeQuorum, asked of exactly that broker."""

import io
import socket
import struct
from dataclasses import dataclass
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.describe_quorum.v0 import request as quorum
from kio.schema.metadata.v8 import request as metadata
from kio.serial import entity_reader, entity_writer

METADATA = (3, 8)
DESCRIBE_QUORUM = (55, 0)
METADATA_TOPIC = "__cluster_metadata"
HEAD = struct.Struct(">ihhih")
NO_CLIENT = -1
ANSWER_S = 2.0


class BrokerUnreachable(Exception):
    """The broker is unreachable, does not answer in time, or answers with an error."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as one broker sees it. `leader` is -1 where there is none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_in_sync(self) -> bool:
        """Whether the partition has a leader, and every replica is in the ISR."""
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


def brokers_seen_by(address: str) -> set[int]:
    """Return the ids of the live brokers. Raises BrokerUnreachable."""
    return {broker.node_id for broker in _metadata(address).brokers}


def addresses_seen_by(address: str) -> dict[int, str]:
    """Return host:port of each live broker, as clients get it. Raises BrokerUnreachable."""
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in _metadata(address).brokers}


def partitions_seen_by(address: str) -> tuple[PartitionView, ...]:
    """Return every partition of every topic. Raises BrokerUnreachable."""
    return tuple(
        PartitionView(
            topic.name, each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes
        )
        for topic in _metadata(address).topics
        for each in topic.partitions
    )


def controller_seen_by(address: str) -> int:
    """Return the id of the active controller, the leader of the metadata quorum. Raises BrokerUnreachable."""
    wanted = quorum.TopicData(topic_name=METADATA_TOPIC, partitions=(quorum.PartitionData(partition_index=0),))
    answer = _ask(address, *DESCRIBE_QUORUM, quorum.DescribeQuorumRequest(topics=(wanted,)))
    leaders = [partition.leader_id for topic in answer.topics for partition in topic.partitions]
    if answer.error_code or not leaders or leaders[0] < 0:
        raise BrokerUnreachable(f"{address} has no controller")
    return int(leaders[0])


def _metadata(address: str) -> Any:
    everything = metadata.MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return _ask(address, *METADATA, everything)


def _ask(address: str, api_key: int, version: int, request: Any) -> Any:
    """Send one request on a connection of its own. Return the response. Raises BrokerUnreachable."""
    schema = load_request_schema(api_key, version)
    body = io.BytesIO()
    entity_writer(schema)(body, request)
    tags = b"\0" if schema.__flexible__ else b""
    content = tags + body.getvalue()
    head = HEAD.pack(HEAD.size - 4 + len(content), api_key, version, 1, NO_CLIENT)
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection:
            connection.sendall(head + content)
            answer = _receive(connection, *struct.unpack(">i", _receive(connection, 4)))
    except OSError as error:
        raise BrokerUnreachable(f"{address}: {error}") from error
    # The correlation id, and the tags of a flexible header.
    response, _ = entity_reader(load_response_schema(api_key, version))(memoryview(answer), 4 + len(tags))
    return response


def _receive(connection: socket.socket, length: int) -> bytes:
    """Receive exactly `length` bytes. Raises OSError."""
    received = bytearray()
    while len(received) < length:
        piece = connection.recv(length - len(received))
        if not piece:
            raise ConnectionError("the connection was closed in the middle of a response")
        received += piece
    return bytes(received)
