"""AlterConfigs (33): replaces all configs of a resource; a config that is not in the request returns to its default."""

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.config_resources import Wanted, alter_all
from cordwood.cluster.kafka.rights import ALTER_CONFIGS, CLUSTER, GROUP, TOPIC, Right, Rights

KEY = ApiKey.ALTER_CONFIGS
RIGHTS: Rights = (
    Right(ALTER_CONFIGS, TOPIC),
    Right(ALTER_CONFIGS, GROUP),
    Right(ALTER_CONFIGS, CLUSTER, "for brokers and client metrics"),
)


async def handle(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    responses = await alter_all(
        request.resources, _wanted, AlterConfigsResourceResponse, call, validate_only=request.validate_only
    )
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def _wanted(resource: AlterConfigsResource) -> Wanted:
    for config in resource.configs:
        if config.value is None:
            raise Refused(ErrorCode.invalid_request, f"Null value not supported for : {config.name}")
    new = {config.name: config.value for config in resource.configs}
    return lambda own: new  # noqa: ARG005
