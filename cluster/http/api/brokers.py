"""Brokers over HTTP: endpoints, fencing state, and whether one may be stopped."""

from typing import Annotated

import msgspec

from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.topic_configs import value_of
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DESCRIBE_CLUSTER
from cordwood.cluster.metadata.commands import Endpoint
from cordwood.cluster.metadata.elections import commit_size
from cordwood.cluster.metadata.image import NO_LEADER, BrokerImage, Image, PartitionImage
from cordwood.cluster.operations.can_stop import reasons_against
from cordwood.cluster.operations.view import BrokerInfo, ClusterView, PartitionInfo, QuorumInfo, ReplicaInfo

MIN_ISR = "min.insync.replicas"


class BrokerDescription(msgspec.Struct, frozen=True):
    """A registered broker. A fenced broker leads nothing: its session timed out, or it has just started."""

    broker_id: int
    epoch: int
    incarnation: str
    endpoints: list[Endpoint]
    http: str | None
    """The broker's HTTP listener as HOST:PORT; null for brokers other than the one that answers."""
    rack: str | None
    is_fenced: bool
    is_shutting_down: bool
    is_controller: bool
    led_partitions: int
    replicas: int
    in_sync_replicas: int


class Brokers(msgspec.Struct, frozen=True):
    """All registered brokers, by id."""

    brokers: list[BrokerDescription]


class Verdict(msgspec.Struct, frozen=True):
    """The result of the check whether a broker may be stopped without an effect on clients."""

    broker_id: int
    can_stop: bool
    reasons: Annotated[
        list[str],
        msgspec.Meta(
            description=(
                "The partitions and the quorum that would be unavailable or under-replicated, one sentence for each."
            )
        ),
    ]


async def list_brokers(asked: ApiRequest[Nothing, Nothing]) -> Brokers:
    """List the registered brokers."""
    context = asked.context
    return Brokers([broker_of(broker, context) for _, broker in sorted(context.image.brokers.items())])


async def describe_broker(asked: ApiRequest[Nothing, Nothing]) -> BrokerDescription:
    """Describe a broker."""
    return broker_of(asked.context.broker(asked.path["broker_id"]), asked.context)


async def can_stop(asked: ApiRequest[Nothing, Nothing]) -> Verdict:
    """Check whether a broker may be stopped now, and if not, why. `cordwood cluster can-stop` uses the same check."""
    broker_id = int(asked.context.broker(asked.path["broker_id"]).id)
    reasons = reasons_against(view_of(asked.context), {broker_id})
    return Verdict(broker_id, not reasons, reasons)


def broker_of(broker: BrokerImage, context: Context) -> BrokerDescription:
    """Return a broker from the newest metadata."""
    image, status = context.image, context.watched.quorum.status()
    held = [
        partition
        for topic in image.topics_by_id.values()
        for partition in topic.partitions
        if broker.id in partition.replicas
    ]
    return BrokerDescription(
        broker_id=int(broker.id),
        epoch=broker.epoch,
        incarnation=str(broker.incarnation),
        endpoints=list(broker.endpoints),
        http=context.settings.http_listen if broker.id == context.watched.broker_id else None,
        rack=broker.rack,
        is_fenced=broker.is_fenced,
        is_shutting_down=broker.is_shutting_down,
        is_controller=broker.id == status.leader_id,
        led_partitions=sum(partition.leader == broker.id for partition in held),
        replicas=len(held),
        in_sync_replicas=sum(broker.id in partition.isr for partition in held),
    )


def view_of(context: Context) -> ClusterView:
    """Return the cluster state that the check needs."""
    image, status = context.image, context.watched.quorum.status()
    members = (*status.voters, *status.observers)
    return ClusterView(
        image.cluster_id,
        tuple(
            BrokerInfo(int(broker.id), "", broker.rack, not broker.is_fenced, None)
            for _, broker in sorted(image.brokers.items())
        ),
        QuorumInfo(
            None if status.leader_id is None else int(status.leader_id),
            status.term,
            tuple(sorted(int(voter.broker_id) for voter in status.voters)),
            {int(member.broker_id): member.log_end for member in members if member.log_end is not None},
        ),
        tuple(_partitions(image, context)),
    )


def _partitions(image: Image, context: Context) -> list[PartitionInfo]:
    configs = broker_config(context.settings, image)
    rows = []
    for _, topic in sorted(image.topics_by_name.items()):
        min_isr = value_of(MIN_ISR, topic.configs, configs)
        assert isinstance(min_isr, int), f"{MIN_ISR} is a number"
        for index, partition in enumerate(topic.partitions):
            leader = None if partition.leader == NO_LEADER else int(partition.leader)
            replicas = _replicas(partition, image)
            size = min(commit_size(partition, min_isr, image.metadata_version), len(replicas))
            rows.append(PartitionInfo(topic.name, index, leader, replicas, size, len(partition.removing)))
    return rows


def _replicas(partition: PartitionImage, image: Image) -> tuple[ReplicaInfo, ...]:
    return tuple(
        ReplicaInfo(int(replica), replica in partition.isr, not image.is_in_service(replica), None, None)
        for replica in partition.replicas
    )


_RIGHTS = (DESCRIBE_CLUSTER,)

ROUTES = (
    Route("GET", "/v1/brokers", list_brokers, Nothing, Nothing, Brokers, requires=_RIGHTS, refusals=(503,)),
    Route(
        "GET",
        "/v1/brokers/{broker_id}",
        describe_broker,
        Nothing,
        Nothing,
        BrokerDescription,
        requires=_RIGHTS,
        refusals=(404, 503),
    ),
    Route(
        "GET",
        "/v1/brokers/{broker_id}/can-stop",
        can_stop,
        Nothing,
        Nothing,
        Verdict,
        requires=_RIGHTS,
        refusals=(404, 503),
    ),
)
