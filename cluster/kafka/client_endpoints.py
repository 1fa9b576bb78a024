"""Which brokers a client can turn to: those in service, by the address of the listener that it came by."""

from collections.abc import Mapping

from cordwood.cluster.kafka.call import Call
from cordwood.cluster.metadata.commands import Assignment, BrokerId, Endpoint
from cordwood.cluster.metadata.image import Image, PartitionImage

NOBODY = -1
"""In the place of a broker's id."""


def reachable(image: Image, listener: str) -> dict[BrokerId, Endpoint]:
    """The brokers that are not fenced, with where this listener's clients reach them. One that stops still serves."""
    return {
        broker.id: endpoint
        for broker in image.brokers.values()
        if not broker.is_fenced and (endpoint := broker.endpoint(listener)) is not None
    }


def offline_replicas(partition: PartitionImage, image: Image) -> Assignment:
    """The replicas of a partition that nobody can be served by now."""
    return tuple(replica for replica in partition.replicas if not image.is_in_service(replica))


def controller_for(call: Call, reachable_brokers: Mapping[BrokerId, Endpoint]) -> int:
    """Whom a client is to ask what the controller does: the active one, or else any broker, which passes it on."""
    active = call.services.quorum.status().leader_id
    if active is not None and active in reachable_brokers:
        return active
    return call.services.rng.choice(list(reachable_brokers)) if reachable_brokers else NOBODY
