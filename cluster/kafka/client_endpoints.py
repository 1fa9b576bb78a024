"""Endpoints of the unfenced brokers on a client's listener, offline replicas, and the controller id for clients."""

from collections.abc import Mapping

from cordwood.cluster.kafka.call import Call
from cordwood.cluster.metadata.commands import NO_BROKER, Assignment, BrokerId, Endpoint
from cordwood.cluster.metadata.image import Image, PartitionImage


def reachable(image: Image, listener: str) -> dict[BrokerId, Endpoint]:
    """Return the unfenced brokers with their endpoints on a listener. A broker in controlled shutdown is included."""
    return {
        broker.id: endpoint
        for broker in image.brokers.values()
        if not broker.is_fenced and (endpoint := broker.endpoint(listener)) is not None
    }


def offline_replicas(partition: PartitionImage, image: Image) -> Assignment:
    """Return the replicas of a partition on brokers that are not in service."""
    return tuple(replica for replica in partition.replicas if not image.is_in_service(replica))


def controller_for(call: Call, reachable_brokers: Mapping[BrokerId, Endpoint]) -> int:
    """Return the broker id that clients get as the controller: the active controller if reachable, else any broker.

    Every broker forwards what only the controller can do.
    """
    active = call.services.quorum.status().leader_id
    if active is not None and active in reachable_brokers:
        return active
    return call.services.rng.choice(list(reachable_brokers)) if reachable_brokers else NO_BROKER
