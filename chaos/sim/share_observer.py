"""A simulated client that asks for the start offsets of a share group (KIP-932)."""

import asyncio

from kio.schema.errors import ErrorCode

from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.group_coordinator import CoordinatorOfGroup
from cordwood.chaos.sim.kafka import SimulatedClient, message, part
from cordwood.cluster.kafka.api_keys import ApiKey

INTERVAL_S = 0.5
VERSION = 1


class ShareObserver:
    """One client program. `starts` are the last start offsets that it got, by partition."""

    def __init__(
        self, client: SimulatedClient, group: tuple[int, str], partitions: int, history: HistoryBuilder
    ) -> None:
        self._client, self._partitions, self._history = client, partitions, history
        self._number, self._group = group
        self._coordinator = CoordinatorOfGroup(client, self._group)
        self.starts: dict[int, int] = {}

    async def run(self) -> None:
        """Run forever."""
        while True:
            await asyncio.sleep(self._client.rng.uniform(0.5, 1.5) * INTERVAL_S)
            try:
                await self._ask()
            except OSError:
                await self._client.refresh_patiently()

    async def _ask(self) -> None:
        api, partitions = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, tuple(range(self._partitions))
        topic = part(
            api,
            "DescribeShareGroupOffsetsRequestTopic",
            VERSION,
            topic_name=self._client.topic,
            partitions=partitions,
        )
        group = part(api, "DescribeShareGroupOffsetsRequestGroup", VERSION, group_id=self._group, topics=(topic,))
        answer = await self._coordinator.ask(message(api, VERSION, groups=(group,)))
        (reported,) = answer.groups
        if reported.error_code is not ErrorCode.none:
            self._coordinator.forget()
            raise OSError(reported.error_code.name)
        for row in (row for topic in reported.topics for row in topic.partitions):
            if row.error_code is ErrorCode.none and row.start_offset >= 0:
                partition, start = int(row.partition_index), int(row.start_offset)
                self.starts[partition] = start
                self._history.share_start(self._number, partition, start, self._client.now_ns)
