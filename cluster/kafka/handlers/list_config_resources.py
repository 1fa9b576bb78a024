"""ListConfigResources (74): the names of all config resources, by type (KIP-1142).

Topics, brokers and client metrics are listed, and the groups that have configs. Kafka's type of broker loggers is
accepted, and has no resources.

Version notes: 0 lists client metrics only (KIP-714).
"""

from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE_CONFIGS, Right, Rights
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.LIST_CONFIG_RESOURCES
RIGHTS: Rights = (Right(DESCRIBE_CONFIGS, CLUSTER),)
ITEMS_MAX = 100
"""There are fewer types than this."""

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
_TYPES_OF_VERSION_0 = (CLIENT_METRICS,)


async def handle(request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    if not call.may(DESCRIBE_CONFIGS, CLUSTER):
        return ListConfigResourcesResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.cluster_authorization_failed, config_resources=()
        )
    types = _TYPES_OF_VERSION_0 if call.version == 0 else _TYPES
    wanted = frozenset(request.resource_types or types)
    if not wanted.issubset(types):
        return ListConfigResourcesResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.unsupported_version, config_resources=()
        )
    image = call.services.quorum.image
    found: list[tuple[int, str]] = []
    if TOPIC in wanted:
        found = [(TOPIC, name) async for name in call.turns.each(image.topics_by_name)]
    if BROKER in wanted:
        found += [(BROKER, str(broker.id)) for broker in image.brokers.values() if broker.endpoint(call.listener)]
    if CLIENT_METRICS in wanted:
        found += [(CLIENT_METRICS, name) for name in image.client_metrics]
    if GROUP in wanted:
        found += [(GROUP, name) async for name in call.turns.each(image.group_configs)]
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=rows(_resource, found),
    )


def _resource(found: tuple[int, str]) -> ConfigResource:
    kind, name = found
    return ConfigResource(resource_name=name, resource_type=kind)
