"""The decisions about the topics of one Fetch request."""

from collections.abc import Callable
from uuid import UUID

from cordwood.cluster.kafka.fetch_sessions import PartitionKey
from cordwood.cluster.kafka.refusals import TopicRefused
from cordwood.cluster.kafka.rights import READ, TOPIC
from cordwood.cluster.kafka.wire import Topic
from cordwood.cluster.security.authorizer import Authorizer, acts_as_broker
from cordwood.cluster.security.principal import Identity
from cordwood.replication.partition import Partition

Find = Callable[[PartitionKey, int, str], Partition]
"""Finds the partition to read, with a leader epoch, for a rack. Raises PartitionRefused and TopicRefused."""


def decide_for(
    authorizer: Authorizer, identity: Identity, name_of: Callable[[UUID], str | None], *, is_replica: bool
) -> Callable[[Topic], bool]:
    """Return a function that decides whether the client may fetch a topic.

    As in Kafka, a request that claims to be a replica's requires CLUSTER_ACTION, and READ is not enough.
    """

    def decide(topic: Topic) -> bool:
        if is_replica:
            return acts_as_broker(authorizer, identity)
        name = topic if isinstance(topic, str) else name_of(topic)
        # An unknown topic id is refused as such.
        return name is None or authorizer.may(identity, READ, TOPIC, name)

    return decide


def guarded(find: Find, decide: Callable[[Topic], bool]) -> Find:
    """Return `find` with a decision about each topic, once for all its partitions."""
    decided: dict[Topic, bool] = {}

    def find_permitted(key: PartitionKey, leader_epoch: int, rack: str) -> Partition:
        topic = key[0]
        if topic not in decided:
            decided[topic] = decide(topic)
        if not decided[topic]:
            raise TopicRefused
        return find(key, leader_epoch, rack)

    return find_permitted
