"""The operator's setup step before clients start: create the topic, and configure share groups, with retries."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.cluster.kafka.api_keys import ApiKey

PREPARED_S = 60.0
RETRY_S = 0.2
KNOWN_S = 0.5
"""The time in which all brokers know a config, before any fault."""
OF_GROUP, SET = 32, 0
"""A resource type and an operation of IncrementalAlterConfigs."""
DEAD_LETTER_TOPIC = {
    "errors.deadletterqueue.group.enable": "true",
    "cleanup.policy": "delete",
    "remote.storage.enable": "false",
}
"""Configs of a dead-letter queue. The checker looks for its records on the replicas' disks."""


async def prepare(
    client: SimulatedClient,
    partitions: int,
    replication_factor: int,
    min_isr: int,
    share_groups: Mapping[str, bool] = MappingProxyType({}),
) -> None:
    """Create the topic, and let share groups begin at its start. Raises TimeoutError if it is not done in time.

    `share_groups` are the names of share groups, and whether they have a dead-letter topic.
    """
    configs = {"min.insync.replicas": str(min_isr)}
    async with asyncio.timeout(PREPARED_S):
        await _create(client, _topic(client.topic, partitions, replication_factor, configs))
        for group, has_dead_letters in share_groups.items():
            group_configs = {"share.auto.offset.reset": "earliest"}
            if has_dead_letters:
                name = dead_letter_topic_of(group)
                own = {**configs, **DEAD_LETTER_TOPIC}
                await _create(client, _topic(name, 1, replication_factor, own))
                group_configs["errors.deadletterqueue.topic.name"] = name
            while not await _is_configured(client, group, group_configs):
                await asyncio.sleep(RETRY_S)
        if share_groups:
            await asyncio.sleep(KNOWN_S)


def dead_letter_topic_of(group: str) -> str:
    """Return the dead-letter topic of a share group."""
    return f"dlq.{group}"


async def _create(client: SimulatedClient, request: Any) -> None:
    while not await _is_created(client, request):
        await asyncio.sleep(RETRY_S)


async def _is_created(client: SimulatedClient, request: Any) -> bool:
    try:
        answer = await client.ask(client.anybody(), request)
    except OSError:
        return False
    return answer.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists)


async def _is_configured(client: SimulatedClient, group: str, configs: Mapping[str, str]) -> bool:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    rows = tuple(
        part(api, "AlterableConfig", name=name, config_operation=SET, value=value) for name, value in configs.items()
    )
    resource = part(api, "AlterConfigsResource", resource_type=OF_GROUP, resource_name=group, configs=rows)
    try:
        answer = await client.ask(client.anybody(), message(api, resources=(resource,), validate_only=False))
    except OSError:
        return False
    return bool(answer.responses[0].error_code is ErrorCode.none)


def _topic(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> Any:
    api = ApiKey.CREATE_TOPICS
    rows = tuple(part(api, "CreatableTopicConfig", name=each, value=value) for each, value in configs.items())
    topic = part(
        api,
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=rows,
    )
    return message(api, topics=(topic,), timeout=duration(5), validate_only=False)
