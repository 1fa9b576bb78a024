"""Configs of groups: the resource type GROUP of DescribeConfigs and IncrementalAlterConfigs."""

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from cordwood.cluster.cli.groups.client import GroupRequests, check

GROUP_RESOURCE = 32
SET, DELETE = 0, 1
SOURCES = {
    8: "dynamic_group_config",
    4: "static_broker_config",
    3: "dynamic_default_broker_config",
    2: "dynamic_broker_config",
    5: "default_config",
}


def group_configs(client: GroupRequests, group: str) -> list[dict[str, Any]]:
    """Return the configs that hold for a group, by key, with their sources. Raises Failure."""
    resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None)
    (found,) = client.ask_any(DescribeConfigsRequest(resources=(resource,))).results
    check(found.error_code, found.error_message)
    return [
        {"key": row.name, "value": row.value, "source": SOURCES.get(row.config_source, "unknown")}
        for row in sorted(found.configs, key=lambda row: str(row.name))
    ]


def alter_group_configs(client: GroupRequests, group: str, changes: Mapping[str, str], unset: Sequence[str]) -> None:
    """Change configs of a group. Raises Failure."""
    rows = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in changes.items()]
    rows += [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in unset]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=tuple(rows))
    (answer,) = client.ask_any(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)).responses
    check(answer.error_code, answer.error_message)
