"""Topic, broker and group configs over HTTP: DescribeConfigs and IncrementalAlterConfigs."""

from typing import Annotated

import msgspec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from cordwood.cluster.config.rows import Source
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import check
from cordwood.cluster.http.route import ApiRequest, DryRun, Nothing, Route
from cordwood.cluster.http.security.rights import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)
from cordwood.cluster.kafka.handlers.incremental_alter_configs import ConfigOperation
from cordwood.cluster.metadata.commands import ResourceType
from cordwood.cluster.metadata.config_values import Kind

ConfigValue = str | bool | int | float
"""A config value in JSON. Configs are text, so true and "true" are the same."""


class Config(msgspec.Struct, frozen=True):
    """One config with its current value."""

    name: str
    value: str | None
    """Null if nothing is set, and for secrets."""
    source: str
    """The source of the value: dynamic_topic, dynamic_broker, dynamic_all_brokers, dynamic_group, static_broker or
    default."""
    default: str | None
    type: str
    is_read_only: bool
    """True if only the broker's configuration file can change it."""
    is_secret: bool
    documentation: str | None


class Configs(msgspec.Struct, frozen=True):
    """All configs of a topic, a broker or a group, by name."""

    configs: list[Config]


class ConfigChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configs to set; null resets a config to its default."""

    configs: Annotated[dict[str, ConfigValue | None], msgspec.Meta(max_length=1000)]


class ChangedConfigs(msgspec.Struct, frozen=True):
    """The configs that were changed, or would be."""

    changed: list[str]


async def describe_topic_configs(asked: ApiRequest[Nothing, Nothing]) -> Configs:
    """Describe the configs of a topic."""
    name = asked.context.topic(asked.path["topic"]).name
    return await _describe(asked.context, None, ResourceType.TOPIC, name)


async def alter_topic_configs(asked: ApiRequest[DryRun, ConfigChanges]) -> ChangedConfigs:
    """Set or reset configs of a topic."""
    return await _alter(asked, ResourceType.TOPIC, asked.context.topic(asked.path["topic"]).name)


async def describe_broker_configs(asked: ApiRequest[Nothing, Nothing]) -> Configs:
    """Describe the configs of a broker. That broker answers."""
    broker_id = int(asked.context.broker(asked.path["broker_id"]).id)
    return await _describe(asked.context, broker_id, ResourceType.BROKER, str(broker_id))


async def alter_broker_configs(asked: ApiRequest[DryRun, ConfigChanges]) -> ChangedConfigs:
    """Set or reset configs of a broker."""
    return await _alter(asked, ResourceType.BROKER, str(asked.context.broker(asked.path["broker_id"]).id))


async def describe_group_configs(asked: ApiRequest[Nothing, Nothing]) -> Configs:
    """Describe the configs of a group, which need not exist yet."""
    return await _describe(asked.context, None, ResourceType.GROUP, asked.path["group"])


async def alter_group_configs(asked: ApiRequest[DryRun, ConfigChanges]) -> ChangedConfigs:
    """Set or reset configs of a group, which need not exist yet."""
    return await _alter(asked, ResourceType.GROUP, asked.path["group"])


def text_of(value: ConfigValue) -> str:
    """Return the value as Kafka's tools write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _describe(context: Context, broker_id: int | None, kind: ResourceType, name: str) -> Configs:
    resource = DescribeConfigsResource(resource_type=int(kind), resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    (result,) = (await context.cluster.ask(broker_id, request)).results
    check(result.error_code, result.error_message)
    return Configs(
        [
            Config(
                name=row.name,
                value=row.value,
                source=Source(row.config_source).name.lower(),
                default=next((at.value for at in row.synonyms if at.source == Source.DEFAULT), None),
                type=Kind(row.config_type).name.lower(),
                is_read_only=row.read_only,
                is_secret=row.is_sensitive,
                documentation=row.documentation,
            )
            for row in sorted(result.configs, key=lambda row: str(row.name))
        ]
    )


async def _alter(asked: ApiRequest[DryRun, ConfigChanges], kind: ResourceType, name: str) -> ChangedConfigs:
    changes = asked.body.configs
    resource = AlterConfigsResource(
        resource_type=int(kind), resource_name=name, configs=tuple(_change(*change) for change in changes.items())
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=asked.query.dry_run)
    (result,) = (await asked.context.cluster.ask(None, request)).responses
    check(result.error_code, result.error_message)
    return ChangedConfigs(sorted(changes))


def _change(name: str, value: ConfigValue | None) -> AlterableConfig:
    if value is None:
        return AlterableConfig(name=name, config_operation=int(ConfigOperation.DELETE), value=None)
    return AlterableConfig(name=name, config_operation=int(ConfigOperation.SET), value=text_of(value))


_OF_A_TOPIC, _OF_A_BROKER = "/v1/topics/{topic}/configs", "/v1/brokers/{broker_id}/configs"
_OF_A_GROUP = "/v1/groups/{group}/configs"

ROUTES = (
    Route(
        "GET",
        _OF_A_TOPIC,
        describe_topic_configs,
        Nothing,
        Nothing,
        Configs,
        requires=(DESCRIBE_TOPIC_CONFIGS,),
        refusals=(404, 503),
    ),
    Route(
        "PATCH",
        _OF_A_TOPIC,
        alter_topic_configs,
        DryRun,
        ConfigChanges,
        ChangedConfigs,
        requires=(ALTER_TOPIC_CONFIGS,),
        refusals=(404, 503),
    ),
    Route(
        "GET",
        _OF_A_BROKER,
        describe_broker_configs,
        Nothing,
        Nothing,
        Configs,
        requires=(DESCRIBE_CLUSTER_CONFIGS,),
        refusals=(404, 503),
    ),
    Route(
        "PATCH",
        _OF_A_BROKER,
        alter_broker_configs,
        DryRun,
        ConfigChanges,
        ChangedConfigs,
        requires=(ALTER_CLUSTER_CONFIGS,),
        refusals=(404, 503),
    ),
    Route(
        "GET",
        _OF_A_GROUP,
        describe_group_configs,
        Nothing,
        Nothing,
        Configs,
        requires=(DESCRIBE_GROUP_CONFIGS,),
        refusals=(503,),
    ),
    Route(
        "PATCH",
        _OF_A_GROUP,
        alter_group_configs,
        DryRun,
        ConfigChanges,
        ChangedConfigs,
        requires=(ALTER_GROUP_CONFIGS,),
        refusals=(503,),
    ),
)
