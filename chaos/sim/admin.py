"""The operator's setup step before producers start: create the topic, with retries."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.cluster.kafka.api_keys import ApiKey

PREPARED_S = 60.0
RETRY_S = 0.2


async def prepare(client: SimulatedClient, partitions: int, replication_factor: int, min_isr: int) -> None:
    """Create the topic. Raises TimeoutError if the cluster does not create it in time."""
    async with asyncio.timeout(PREPARED_S):
        while not await _asked(client, _topic(client.topic, partitions, replication_factor, min_isr)):
            await asyncio.sleep(RETRY_S)


async def _asked(client: SimulatedClient, request: Any) -> bool:
    try:
        answer = await client.ask(client.anybody(), request)
    except OSError:
        return False
    return answer.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists)


def _topic(name: str, partitions: int, replication_factor: int, min_isr: int) -> Any:
    api = ApiKey.CREATE_TOPICS
    config = part(api, "CreatableTopicConfig", name="min.insync.replicas", value=str(min_isr))
    topic = part(
        api,
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=(config,),
    )
    return message(api, topics=(topic,), timeout=duration(5), validate_only=False)
