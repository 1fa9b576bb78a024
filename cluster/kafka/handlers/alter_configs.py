"""AlterConfigs (33): replaces all configs of a resource; a config that is not in the request returns to its default."""

from collections import Counter
from collections.abc import Mapping

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.config_resources import alter, check_count

KEY, VERSIONS = ApiKey.ALTER_CONFIGS, range(3)


async def handle(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    times: Counter[tuple[int, str]] = Counter()
    async for resource in call.turns.each(request.resources):
        times[resource.resource_type, resource.resource_name] += 1

    async def response(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        code, message = ErrorCode.none, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.invalid_request, "Each resource must appear at most once.")
            new = _wanted(resource)
            await alter(
                resource.resource_type,
                resource.resource_name,
                lambda own: new,  # noqa: ARG005
                call,
                validate_only=request.validate_only,
            )
        except Refused as refusal:
            code, message = refusal.code, refusal.message
        return AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    responses = await call.turns.gather(response, request.resources)
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=tuple(responses))


def _wanted(resource: AlterConfigsResource) -> Mapping[str, str]:
    check_count(resource.configs)
    for config in resource.configs:
        if config.value is None:
            raise Refused(ErrorCode.invalid_request, f"Null value not supported for : {config.name}")
    return {config.name: config.value for config in resource.configs}
