"""DescribeCluster (60): the cluster id, the controller, and brokers on a client's listener (KIP-700, KIP-1073)."""

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authorized import cluster_operations
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.client_endpoints import controller_for, reachable
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, Right, Rights
from cordwood.cluster.metadata.image import Image

KEY = ApiKey.DESCRIBE_CLUSTER
RIGHTS: Rights = (Right(DESCRIBE, CLUSTER, "for the authorized operations, of which there are none without it"),)

_BROKERS, _CONTROLLERS = 1, 2
"""Endpoint types (KIP-919). Controllers have no listener of their own: every broker serves their requests."""


async def handle(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    image = call.services.quorum.image
    code, message = ErrorCode.none, None
    brokers: tuple[DescribeClusterBroker, ...] = ()
    try:
        _check_endpoint_type(request.endpoint_type)
        brokers = _brokers(image, call.listener, include_fenced=request.include_fenced_brokers)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id=image.cluster_id,
        controller_id=controller_for(call, reachable(image, call.listener)),
        brokers=brokers,
        cluster_authorized_operations=cluster_operations(call, request.include_cluster_authorized_operations),
    )


def _check_endpoint_type(endpoint_type: int) -> None:
    if endpoint_type == _CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER."
        raise Refused(ErrorCode.mismatched_endpoint_type, message)
    if endpoint_type != _BROKERS:
        raise Refused(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}.")


def _brokers(image: Image, listener: str, *, include_fenced: bool) -> tuple[DescribeClusterBroker, ...]:
    return tuple(
        DescribeClusterBroker(
            broker_id=broker.id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
        for broker in image.brokers.values()
        if (endpoint := broker.endpoint(listener)) is not None and (include_fenced or not broker.is_fenced)
    )
