"""Simulated members of one consumer group (classic protocol): join, sync, heartbeat, fetch and commit."""

import asyncio
import struct
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.consumer import Reader
from cordwood.chaos.sim.kafka import Address, SimulatedClient, duration, message, part
from cordwood.chaos.sim.producer import Alarm
from cordwood.cluster.kafka.api_keys import ApiKey

GROUP, GROUP_NUMBER = "chaos-group", 0
SESSION_S, REBALANCE_S, JOIN_S = 3.0, 5.0, 15.0
BEAT_INTERVAL_S, COMMIT_INTERVAL_S = 0.2, 0.5
PROTOCOL = "in-turn"


class Rejoin(Exception):
    """The coordinator returned an error, or moved: the member has to join again."""


class SimulatedMember:
    """One member program. `number` is its number among all consumers."""

    def __init__(
        self, client: SimulatedClient, number: int, partitions: int, history: HistoryBuilder, alarm: Alarm
    ) -> None:
        self._client, self._history, self._partitions = client, history, partitions
        self._readers = [
            Reader(client, number, partition, history, alarm, any_replica=False) for partition in range(partitions)
        ]
        self._id, self._generation, self._beat_at_s = "", -1, 0.0
        self._coordinator: Address = client.anybody()

    def position(self, partition: int) -> int:
        """Return the member's last position in a partition, in any generation."""
        return self._readers[partition].position

    async def run(self) -> None:
        """Run forever."""
        while True:
            try:
                await self._find_coordinator()
                await self._read(await self._join())
            except (OSError, Rejoin):
                await self._client.refresh_patiently()

    async def _find_coordinator(self) -> None:
        request = message(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=(GROUP,))
        answer = await self._client.ask(self._client.anybody(), request)
        found = answer.coordinators[0]
        _expect(found.error_code)
        self._coordinator = (found.host, int(found.port))

    async def _join(self) -> list[Reader]:
        """Join the group. Return the readers of the assigned partitions."""
        joined = await self._client.ask(self._coordinator, self._join_request(), JOIN_S)
        self._id = joined.member_id or self._id
        if joined.error_code is ErrorCode.unknown_member_id:
            self._id = ""
        _expect(joined.error_code)
        self._generation = int(joined.generation_id)
        members = [str(member.member_id) for member in joined.members]
        request = message(
            ApiKey.SYNC_GROUP,
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=self._assignments(members) if joined.leader == self._id else (),
        )
        synced = await self._client.ask(self._coordinator, request, JOIN_S)
        _expect(synced.error_code)
        given = bytes(synced.assignment)
        return [self._readers[index] for (index,) in struct.iter_unpack(">i", given)]

    def _join_request(self) -> Any:
        return message(
            ApiKey.JOIN_GROUP,
            group_id=GROUP,
            session_timeout=duration(SESSION_S),
            rebalance_timeout=duration(REBALANCE_S),
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(part(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol", name=PROTOCOL, metadata=b""),),
            reason=None,
        )

    def _assignments(self, members: list[str]) -> tuple[Any, ...]:
        """Return round-robin assignments."""
        return tuple(
            part(
                ApiKey.SYNC_GROUP,
                "SyncGroupRequestAssignment",
                member_id=member,
                assignment=b"".join(struct.pack(">i", index) for index in range(place, self._partitions, len(members))),
            )
            for place, member in enumerate(members)
        )

    async def _read(self, readers: list[Reader]) -> None:
        """Read and commit until the coordinator returns an error. Raises Rejoin, OSError."""
        for reader in readers:
            reader.begin(max(0, await self._committed(reader.partition)))
        commit_at_s = self._client.loop.time() + COMMIT_INTERVAL_S
        while True:
            for reader in readers:
                if not await reader.poll():
                    await self._client.refresh_patiently()
                await self._beat()
            if not readers:
                await asyncio.sleep(COMMIT_INTERVAL_S)
                await self._beat()
            if self._client.loop.time() >= commit_at_s:
                commit_at_s = self._client.loop.time() + COMMIT_INTERVAL_S
                for reader in readers:
                    await self._commit(reader)

    async def _beat(self) -> None:
        """Send a heartbeat if one is due."""
        now_s = self._client.loop.time()
        if now_s < self._beat_at_s:
            return
        self._beat_at_s = now_s + BEAT_INTERVAL_S
        request = message(
            ApiKey.HEARTBEAT,
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=None,
        )
        answer = await self._client.ask(self._coordinator, request)
        if answer.error_code is ErrorCode.unknown_member_id:
            self._id = ""
        _expect(answer.error_code)

    async def _committed(self, partition: int) -> int:
        topic = part(
            ApiKey.OFFSET_FETCH, "OffsetFetchRequestTopics", name=self._client.topic, partition_indexes=(partition,)
        )
        group = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=GROUP, topics=(topic,))
        answer = await self._client.ask(
            self._coordinator, message(ApiKey.OFFSET_FETCH, groups=(group,), require_stable=False)
        )
        reported = answer.groups[0]
        _expect(reported.error_code)
        _expect(reported.topics[0].partitions[0].error_code)
        offset = int(reported.topics[0].partitions[0].committed_offset)
        self._history.read_commit(GROUP_NUMBER, self._generation, partition, offset)
        return offset

    async def _commit(self, reader: Reader) -> None:
        offset = reader.position
        row = part(
            ApiKey.OFFSET_COMMIT,
            "OffsetCommitRequestPartition",
            partition_index=reader.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        topic = part(ApiKey.OFFSET_COMMIT, "OffsetCommitRequestTopic", name=self._client.topic, partitions=(row,))
        request = message(
            ApiKey.OFFSET_COMMIT,
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            group_instance_id=None,
            topics=(topic,),
        )
        outcome = Outcome.INFO
        try:
            answer = await self._client.ask(self._coordinator, request)
            code = answer.topics[0].partitions[0].error_code
            outcome = Outcome.OK if code is ErrorCode.none else Outcome.INFO
            _expect(code)
        finally:
            self._history.commit(GROUP_NUMBER, self._generation, reader.partition, offset, outcome)


def _expect(code: ErrorCode) -> None:
    """Raise Rejoin for any error code."""
    if code is not ErrorCode.none:
        raise Rejoin(code.name)
