"""Simulated clients of ListOffsets and OffsetForLeaderEpoch, which read no records."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId

from cordwood.chaos.history import UNKNOWN
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.consumer import EARLIEST, LATEST
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import SimulatedClient, message, part
from cordwood.cluster.kafka.api_keys import ApiKey

INTERVAL_S = 0.1
A_CLIENT = BrokerId(-1)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Question = Callable[[int, int], Awaitable[bool]]
"""Takes a partition and its leader epoch. Returns False if no leader answered and the metadata has to be refreshed."""


class OffsetClient:
    """One client program. `number` is its number among all consumers."""

    def __init__(self, client: SimulatedClient, number: int, partitions: int, history: HistoryBuilder) -> None:
        self._client, self._number, self._partitions, self._history = client, number, partitions, history
        self._questions: tuple[Question, ...] = (self._latest, self._earliest, self._by_time, self._by_epoch)

    async def run(self) -> None:
        """Run forever."""
        client = self._client
        while True:
            await asyncio.sleep(client.rng.uniform(0.2, 1.8) * INTERVAL_S)
            partition, ask = client.rng.randrange(self._partitions), client.rng.choice(self._questions)
            if client.leader(partition) is None or not await ask(partition, client.leader_epochs[partition]):
                await client.refresh_patiently()

    async def _latest(self, partition: int, epoch: int) -> bool:
        """Ask for the high watermark, or with read_committed for the last stable offset."""
        isolation = self._isolation()
        asked_ns, found = self._client.now_ns, await self._list_offsets(partition, epoch, LATEST, isolation)
        if found is None:
            return False
        end = int(found.offset)
        self._history.watermark(
            self._number,
            partition,
            UNKNOWN if isolation == READ_COMMITTED else end,
            UNKNOWN,
            self._client.now_ns,
            invoked_ns=asked_ns,
            leader_epoch=epoch,
            last_stable=end if isolation == READ_COMMITTED else UNKNOWN,
        )
        return True

    def _isolation(self) -> int:
        return self._client.rng.choice((READ_UNCOMMITTED, READ_COMMITTED))

    async def _earliest(self, partition: int, epoch: int) -> bool:
        asked_ns, found = self._client.now_ns, await self._list_offsets(partition, epoch, EARLIEST, self._isolation())
        if found is None:
            return False
        start, now_ns = int(found.offset), self._client.now_ns
        self._history.watermark(
            self._number, partition, UNKNOWN, start, now_ns, invoked_ns=asked_ns, leader_epoch=epoch
        )
        return True

    async def _by_time(self, partition: int, epoch: int) -> bool:
        asked_ns = self._client.now_ns
        wanted = BEGAN_MS + self._client.rng.randrange(asked_ns // 1_000_000 + 1)
        found = await self._list_offsets(partition, epoch, wanted, READ_UNCOMMITTED)
        if found is None:
            return False
        answer, times = (int(found.offset), int(found.timestamp)), (asked_ns, self._client.now_ns)
        self._history.looked_up(self._number, partition, wanted, answer, times, epoch)
        return True

    async def _list_offsets(self, partition: int, epoch: int, timestamp: int, isolation: int) -> Any | None:
        """Return the leader's answer; None if there is none."""
        api = ApiKey.LIST_OFFSETS
        row = part(
            api,
            "ListOffsetsPartition",
            partition_index=partition,
            current_leader_epoch=epoch,
            timestamp=timestamp,
        )
        topic = part(api, "ListOffsetsTopic", name=self._client.topic, partitions=(row,))
        request = message(api, replica_id=A_CLIENT, isolation_level=isolation, topics=(topic,))
        return await self._ask(partition, request)

    async def _by_epoch(self, partition: int, epoch: int) -> bool:
        api, asked_ns = ApiKey.OFFSET_FOR_LEADER_EPOCH, self._client.now_ns
        wanted = self._client.rng.choice((epoch, self._client.rng.randint(0, epoch)))
        row = part(
            api,
            "OffsetForLeaderPartition",
            partition=partition,
            current_leader_epoch=epoch,
            leader_epoch=wanted,
        )
        topic = part(api, "OffsetForLeaderTopic", topic=self._client.topic, partitions=(row,))
        found = await self._ask(partition, message(api, replica_id=A_CLIENT, topics=(topic,)))
        if found is None:
            return False
        answer, times = (int(found.leader_epoch), int(found.end_offset)), (asked_ns, self._client.now_ns)
        self._history.epoch_end(self._number, partition, wanted, answer, times, epoch)
        return True

    async def _ask(self, partition: int, request: Any) -> Any | None:
        """Return the row of the partition; None if the leader does not answer, or returns an error."""
        address = self._client.leader(partition)
        if address is None:
            return None
        try:
            answer = await self._client.ask(address, request)
        except OSError:
            return None
        found = answer.topics[0].partitions[0]
        return found if found.error_code is ErrorCode.none else None
