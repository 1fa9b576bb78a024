"""IncrementalAlterConfigs (44): sets, deletes, appends to or subtracts from configs of a resource (KIP-339)."""

from collections.abc import Mapping
from enum import IntEnum
from typing import assert_never

from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.config_resources import Wanted, alter_all, list_of
from cordwood.cluster.kafka.rights import ALTER_CONFIGS, CLUSTER, GROUP, TOPIC, Right, Rights

KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
RIGHTS: Rights = (
    Right(ALTER_CONFIGS, TOPIC),
    Right(ALTER_CONFIGS, GROUP),
    Right(ALTER_CONFIGS, CLUSTER, "for brokers and client metrics"),
)


class ConfigOperation(IntEnum):
    """The operation on one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(request: IncrementalAlterConfigsRequest, call: Call) -> IncrementalAlterConfigsResponse:
    def change(resource: AlterConfigsResource) -> Wanted:
        _check_keys(resource)
        return lambda own: _changed(resource, own, call)

    responses = await alter_all(
        request.resources, change, AlterConfigsResourceResponse, call, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def _check_keys(resource: AlterConfigsResource) -> None:
    if len({config.name for config in resource.configs}) < len(resource.configs):
        raise Refused(ErrorCode.invalid_request, "Error due to duplicate config keys")
    for config in resource.configs:
        if config.value is None and config.config_operation != ConfigOperation.DELETE:
            raise Refused(ErrorCode.invalid_request, f"Null value not supported for : {config.name}")


def _changed(resource: AlterConfigsResource, own: Mapping[str, str], call: Call) -> Mapping[str, str]:
    changed = dict(own)
    for config in resource.configs:
        operation = _operation(config)
        match operation:
            case ConfigOperation.SET:
                changed[config.name] = config.value
            case ConfigOperation.DELETE:
                changed.pop(config.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                words = list_of(resource.resource_type, resource.resource_name, config.name, own, call)
                named = {word: None for part in config.value.split(",") if (word := part.strip())}
                if operation is ConfigOperation.APPEND:
                    words = tuple(dict.fromkeys([*words, *named]))
                else:
                    words = tuple(word for word in words if word not in named)
                changed[config.name] = ",".join(words)
            case _:
                assert_never(operation)
    return changed


def _operation(config: AlterableConfig) -> ConfigOperation:
    try:
        return ConfigOperation(config.config_operation)
    except ValueError:
        raise Refused(ErrorCode.invalid_request, f"Unknown operation {config.config_operation}.") from None
