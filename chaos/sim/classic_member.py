"""The life of a simulated member in the classic protocol, with the messages of real consumers.

A group of the consumer protocol serves such members too (KIP-848): their subscriptions and assignments have to be in
the format of consumers then.
"""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.group_coordinator import MOVED
from cordwood.chaos.sim.kafka import duration, message, part
from cordwood.chaos.sim.membership import MembershipLost, SimulatedMembership
from cordwood.cluster.kafka.api_keys import ApiKey

PROTOCOL, PROTOCOL_TYPE = "range", "consumer"
SESSION_S, REBALANCE_S, JOIN_S = 3.0, 4.0, 15.0
BEAT_S, COMMIT_INTERVAL_S, IDLE_S = 0.3, 0.5, 0.1
NO_DATA = struct.pack(">i", -1)


class ClassicLife:
    """One membership in the classic protocol. It gives all partitions back before it joins again (eager)."""

    def __init__(self, membership: SimulatedMembership) -> None:
        self._of, self._client = membership, membership.client
        self._is_joined = False
        self._beat_at_s = self._commit_at_s = 0.0

    def begin_again(self) -> None:
        """Join with the next step."""
        self._is_joined = False

    async def step(self) -> None:
        """Join if necessary, send a heartbeat if one is due, read, and commit. Raises OSError, MembershipLost."""
        if not self._is_joined:
            await self._join()
        await self._beat_if_due()
        for partition in sorted(self._of.owned):
            await self._of.poll(partition)
            await self._beat_if_due()
        if not self._of.owned:
            await asyncio.sleep(IDLE_S)
        if self._client.loop.time() >= self._commit_at_s:
            self._commit_at_s = self._client.loop.time() + COMMIT_INTERVAL_S
            await self._of.commit(frozenset(self._of.owned))

    async def leave(self) -> None:
        """Leave the group. Raises OSError."""
        api, of = ApiKey.LEAVE_GROUP, self._of
        member = part(api, "MemberIdentity", member_id=of.member_id, group_instance_id=of.instance_id, reason=None)
        await of.coordinator.ask(message(api, group_id=of.group, members=(member,)))

    async def _join(self) -> None:
        of, invoked_ns = self._of, self._client.now_ns
        protocol = part(
            ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol", name=PROTOCOL, metadata=subscription(self._client.topic)
        )
        request = message(
            ApiKey.JOIN_GROUP,
            group_id=of.group,
            session_timeout=duration(SESSION_S),
            rebalance_timeout=duration(REBALANCE_S),
            member_id=of.member_id,
            group_instance_id=of.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
            reason=None,
        )
        joined = await of.coordinator.ask(request, JOIN_S)
        if joined.error_code is ErrorCode.member_id_required:
            of.member_id = joined.member_id
            return await self._join()
        self._expect(joined.error_code)
        of.member_id = joined.member_id
        of.got_epoch(int(joined.generation_id), invoked_ns)
        members = [str(member.member_id) for member in joined.members]
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        request = message(
            ApiKey.SYNC_GROUP,
            group_id=of.group,
            generation_id=of.epoch,
            member_id=of.member_id,
            group_instance_id=of.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=self._assignments(members) if is_leader else (),
        )
        synced = await of.coordinator.ask(request, JOIN_S)
        self._expect(synced.error_code)
        for partition in partitions_in(bytes(synced.assignment), self._client.topic):
            of.got(partition)
        self._is_joined = True
        return None

    def _assignments(self, members: Sequence[str]) -> tuple[Any, ...]:
        topic, count = self._client.topic, len(self._of.readers)
        return tuple(
            part(
                ApiKey.SYNC_GROUP,
                "SyncGroupRequestAssignment",
                member_id=member,
                assignment=assignment(topic, range(place, count, len(members))),
            )
            for place, member in enumerate(members)
        )

    async def _beat_if_due(self) -> None:
        """Send a heartbeat if one is due. Raises OSError, and MembershipLost if the group is to be joined again."""
        of, client = self._of, self._client
        if client.loop.time() < self._beat_at_s:
            return
        named, invoked_ns = frozenset(of.owned), client.now_ns
        request = message(
            ApiKey.HEARTBEAT,
            group_id=of.group,
            generation_id=of.epoch,
            member_id=of.member_id,
            group_instance_id=of.instance_id,
        )
        answer = await of.coordinator.ask(request)
        of.answered_by, self._beat_at_s = of.coordinator.broker, client.loop.time() + BEAT_S
        if answer.error_code is ErrorCode.rebalance_in_progress:
            await of.commit(named)
        self._expect(answer.error_code)
        of.confirmed(named, invoked_ns)

    def _expect(self, code: ErrorCode) -> None:
        if code is ErrorCode.none:
            return
        if code in MOVED:
            self._of.coordinator.forget()
            raise OSError(code.name)
        if code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self._of.member_id = ""
        raise MembershipLost(code.name)


def subscription(topic: str) -> bytes:
    """Return the subscription of a consumer, in version 1, which owns nothing."""
    return struct.pack(">hi", 1, 1) + _text(topic) + NO_DATA + struct.pack(">i", 0)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """Return the assignment of a consumer, in version 1."""
    of_topic = _text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 1, 1) + of_topic + NO_DATA


def partitions_in(data: bytes, topic: str) -> Iterator[int]:
    """Yield the partitions of a topic in an assignment of any version. No bytes are no partitions."""
    if not data:
        return
    (topics,), position = struct.unpack_from(">i", data, 2), 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, position)
        name = data[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (count,) = struct.unpack_from(">i", data, position)
        partitions = struct.unpack_from(f">{count}i", data, position + 4)
        position += 4 + 4 * count
        if name == topic:
            yield from partitions


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
