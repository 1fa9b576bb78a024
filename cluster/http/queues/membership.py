"""The membership of one member in a share group: heartbeats to the coordinator, and the assignment (KIP-932)."""

import asyncio
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from cordwood.cluster.http.queues.deliveries import QueuePartition
from cordwood.cluster.http.refusal import NOT_NOW, HttpRefusal, refusal_of, status_of
from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.kafka.handlers.find_coordinator import GROUP

JOIN, LEAVE = 0, -1
"""Member epochs."""
RETRY_S = 0.2
LEAVE_S = 2.0
"""A broker that stops waits this long for the coordinator."""
UNASSIGNED_S = 0.5
"""The interval of heartbeats until the member has partitions, if the coordinator's is longer."""
_FENCED = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id})


class GroupMembership:
    """Keeps one member in its group. `run` ends only by a refusal or a cancellation."""

    def __init__(
        self,
        cluster: ClusterClient,
        group_id: str,
        member_id: str,
        topics: tuple[str, ...],
        assigned: Callable[[], None],
    ) -> None:
        """`assigned` is called after each change of the assignment."""
        self._cluster, self._group_id, self._member_id, self._topics = cluster, group_id, member_id, topics
        self._assigned = assigned
        self._coordinator: int | None = None
        self._epoch = JOIN
        self.has_joined = False
        self.places: frozenset[QueuePartition] = frozenset()
        """The assigned partitions."""

    async def run(self) -> None:
        """Join the group, and send heartbeats. Raises HttpRefusal if the coordinator does not take the member."""
        while True:
            try:
                await asyncio.sleep(await self._beat())
            except Unanswered:
                self._coordinator = None
                await asyncio.sleep(RETRY_S)
            except HttpRefusal as refusal:
                if refusal.status != NOT_NOW:
                    raise
                self._coordinator = None
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Leave the group. If that fails, the member's session expires at the coordinator."""
        if self.has_joined:
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._send(LEAVE, None)
            except (Unanswered, HttpRefusal, TimeoutError):
                return

    async def _beat(self) -> float:
        """Send one heartbeat. Return the seconds until the next one. Raises Unanswered, HttpRefusal."""
        response = await self._send(self._epoch, self._topics if self._epoch == JOIN else None)
        code = response.error_code
        if code in _FENCED and self._epoch != JOIN:
            self._epoch = JOIN
            return 0.0
        if code is not ErrorCode.none:
            raise refusal_of(code, response.error_message if status_of(code) != NOT_NOW else None)
        self._epoch, has_joined = response.member_epoch, self.has_joined
        self.has_joined = True
        if response.assignment is not None:
            self.places = frozenset(
                QueuePartition(topic.topic_id, index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )
        if response.assignment is not None or not has_joined:
            self._assigned()
        interval_s: float = response.heartbeat_interval.total_seconds()
        return interval_s if self.places else min(interval_s, UNASSIGNED_S)

    async def _send(self, epoch: int, topics: tuple[str, ...] | None) -> Any:
        coordinator = await self._find()
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )
        return await self._cluster.ask(coordinator, request)

    async def _find(self) -> int:
        if self._coordinator is None:
            request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=(self._group_id,))
            (found,) = (await self._cluster.ask(None, request)).coordinators
            if found.error_code is not ErrorCode.none:
                raise refusal_of(found.error_code, found.error_message)
            self._coordinator = int(found.node_id)
        return self._coordinator
