"""The description of the metadata quorum by its leader, for a broker that a client has asked and that does not lead."""

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse

from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.security.principal import Identity

METADATA_TOPIC = "__cluster_metadata"
ASKING_BROKER = "metadata-quorum"
"""The client id of a broker that asks the leader: its request is not forwarded again after a change of leaders."""
ANSWER_S = 1.0
"""The client waits meanwhile. Without an answer it gets what the asked broker knows."""

_REQUEST = DescribeQuorumRequest(
    topics=(TopicData(topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=0),)),)
)


class QuorumLeader:
    """The leader of the metadata quorum as another broker asks it."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def describe(self, leader: BrokerId, asker: Identity) -> DescribeQuorumResponse | None:
        """Return the leader's answer to a client's request, with the rights of that client; None without an answer."""
        try:
            answer: DescribeQuorumResponse = await self._cluster.on_behalf_of(asker).ask(leader, _REQUEST, ANSWER_S)
        except Unanswered:
            return None
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()
