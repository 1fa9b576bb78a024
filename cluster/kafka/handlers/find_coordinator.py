"""FindCoordinator (10): the group coordinator, which is the leader of the group's partition of `__consumer_offsets`.

There is no transaction coordinator. Key type 1 (transaction) is refused with INVALID_REQUEST, a fatal error for every
client: after COORDINATOR_NOT_AVAILABLE a producer would retry until its timeout, and an authorization error would
suggest missing permissions.

Version notes: 1 adds the key type; 4 takes several keys (KIP-699).
"""

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.metadata.commands import Endpoint
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.cluster.resources.turns import distinct

KEY, VERSIONS = ApiKey.FIND_COORDINATOR, range(5)

GROUP = 0
TRANSACTION = 1
"""Kafka's key types."""

_NOBODY = -1
_NOWHERE = Endpoint("", "", _NOBODY)


def upgrade_request(request: Any, version: int) -> FindCoordinatorRequest:  # noqa: ARG001
    """Upgrade a request. Before version 4 it has one key; in version 0 the key is a group id."""
    return FindCoordinatorRequest(key_type=getattr(request, "key_type", GROUP), coordinator_keys=(request.key,))


def downgrade_response(response: FindCoordinatorResponse, version: int) -> Any:  # noqa: ARG001
    (only,) = response.coordinators
    return SimpleNamespace(
        throttle_time=response.throttle_time,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def handle(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    keys = await call.turns.run(distinct(request.coordinator_keys))
    coordinators = [await _coordinator(request.key_type, key, call) async for key in call.turns.each(keys)]
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=tuple(coordinators))


async def _coordinator(key_type: int, key: str, call: Call) -> Coordinator:
    code, message, broker_id, endpoint = ErrorCode.none, None, _NOBODY, _NOWHERE
    try:
        broker_id, endpoint = await _find(key_type, key, call)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return Coordinator(
        key=key,
        node_id=broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=code,
        error_message=message,
    )


async def _find(key_type: int, key: str, call: Call) -> tuple[int, Endpoint]:
    if key_type == TRANSACTION:
        raise Refused(ErrorCode.invalid_request, "Transactions are not supported.")
    if key_type != GROUP:
        raise Refused(ErrorCode.invalid_request, f"Keys of type {key_type} have no coordinator.")
    partition = await call.services.groups.place(key)
    image = call.services.quorum.image
    leader = image.topics_by_name[CONSUMER_OFFSETS].partitions[partition].leader
    broker = image.brokers.get(leader)
    endpoint = None if broker is None else broker.endpoint(call.listener)
    if endpoint is None:
        raise Refused(ErrorCode.coordinator_not_available)
    return leader, endpoint
