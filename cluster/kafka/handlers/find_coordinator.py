"""FindCoordinator (10): the broker that coordinates a group, a transactional id or a share partition.

It leads the partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state` in which that is stored.

Version notes: 1 adds the key type; 4 takes several keys (KIP-699); 6 adds share partitions (KIP-932), for
brokers.
"""

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka import rights
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER_ACTION, DESCRIBE, TRANSACTIONAL_ID, Right, Rights
from cordwood.cluster.metadata.commands import NO_BROKER, Endpoint
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from cordwood.cluster.share.states import SharePartitionKey, parse_key
from cordwood.storage.steps import distinct

KEY = ApiKey.FIND_COORDINATOR
RIGHTS: Rights = (
    Right(DESCRIBE, rights.GROUP, "for groups"),
    Right(DESCRIBE, TRANSACTIONAL_ID, "for transactional ids"),
    Right(CLUSTER_ACTION, rights.CLUSTER, "for share partitions"),
)

GROUP = 0
TRANSACTION = 1
SHARE = 2
"""Kafka's key types."""

_FIRST_WITH_KEYS = 4
FIRST_WITH_SHARES = 6
_NOWHERE = Endpoint("", "", NO_BROKER)


def upgrade_request(request: Any, version: int) -> FindCoordinatorRequest:
    """Upgrade a request. Before version 4 it has one key; in version 0 the key is a group id."""
    if version >= _FIRST_WITH_KEYS:
        return FindCoordinatorRequest(key_type=request.key_type, coordinator_keys=request.coordinator_keys)
    return FindCoordinatorRequest(key_type=getattr(request, "key_type", GROUP), coordinator_keys=(request.key,))


def downgrade_response(response: FindCoordinatorResponse, version: int) -> Any:
    if version >= _FIRST_WITH_KEYS:
        return response
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
    code, message, endpoint = ErrorCode.none, None, _NOWHERE
    broker_id: int = NO_BROKER
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
    if key_type == GROUP:
        call.require(DESCRIBE, rights.GROUP, key)
        topic, partition = CONSUMER_OFFSETS, await call.services.groups.place(key)
    elif key_type == TRANSACTION:
        call.require(DESCRIBE, TRANSACTIONAL_ID, key)
        topic, partition = TRANSACTION_STATE, await call.services.transactions.place(key)
    elif key_type == SHARE and call.version >= FIRST_WITH_SHARES:
        call.require(CLUSTER_ACTION, rights.CLUSTER)
        topic, partition = SHARE_GROUP_STATE, await call.services.share_coordinator.place(_share_partition(key))
    else:
        raise Refused(ErrorCode.invalid_request, f"Keys of type {key_type} have no coordinator.")
    image = call.services.quorum.image
    leader = image.topics_by_name[topic].partitions[partition].leader
    broker = image.brokers.get(leader)
    endpoint = None if broker is None else broker.endpoint(call.listener)
    if endpoint is None:
        raise Refused(ErrorCode.coordinator_not_available)
    return leader, endpoint


def _share_partition(key: str) -> SharePartitionKey:
    """Return the share partition that a key names. Raises Refused."""
    try:
        return parse_key(key)
    except ValueError:
        message = "A share partition is named by its group id, topic id and partition, with colons between them."
        raise Refused(ErrorCode.invalid_request, message) from None
