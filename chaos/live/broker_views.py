"""One broker's own view of the cluster: Metadata, DescribeQuorum and FindCoordinator, asked of that broker only."""

from dataclasses import dataclass
from typing import Any

from kio.schema.describe_quorum.v0 import request as quorum
from kio.schema.find_coordinator.v6 import request as find_coordinator
from kio.schema.metadata.v8 import request as metadata

from cordwood.chaos.live.security import security
from cordwood.client.blocking import connect

METADATA_TOPIC = "__cluster_metadata"
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""Key types of FindCoordinator."""
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
    answer = _ask(address, quorum.DescribeQuorumRequest(topics=(wanted,)))
    leaders = [partition.leader_id for topic in answer.topics for partition in topic.partitions]
    if answer.error_code or not leaders or leaders[0] < 0:
        raise BrokerUnreachable(f"{address} has no controller")
    return int(leaders[0])


def coordinator_seen_by(address: str, transactional_id: str) -> int:
    """Return the id of the coordinator of a transactional id. Raises BrokerUnreachable."""
    [found] = _ask(address, coordinator_request(TRANSACTION_KEY, transactional_id)).coordinators
    if found.error_code:
        raise BrokerUnreachable(f"{address} knows no coordinator of {transactional_id}: {found.error_code.name}")
    return int(found.node_id)


def coordinator_request(key_type: int, key: str) -> Any:
    """Return the request for the coordinator of a group or of a transactional id."""
    return find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))


def _metadata(address: str) -> Any:
    everything = metadata.MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return _ask(address, everything)


def _ask(address: str, request: Any) -> Any:
    """Send one request on its own connection. Return the response. Raises BrokerUnreachable."""
    try:
        with connect(address, ANSWER_S, security=security()) as connection:
            return connection.ask(request)
    except OSError as error:
        raise BrokerUnreachable(f"{address}: {error}") from error
