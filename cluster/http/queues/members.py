"""The members of share groups that one broker keeps for its HTTP clients: one for each user, group and topics."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple
from uuid import NAMESPACE_OID, uuid5

from kio.schema.errors import ErrorCode

from cordwood.cluster.http.queues.measures import QueueMeasures
from cordwood.cluster.http.queues.member import QueueContext, QueueMember, TakeAnswer, Taken
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.operations.queue_receipts import Receipt
from cordwood.cluster.security.principal import Principal
from cordwood.replication.tasks import Tasks

USER_SHARE = 2
"""One user may have 1/2 of each limit."""
LOOK_S = 1.0
AT_ONCE_MAX = 64
"""Requests in flight to one broker for queues."""

_Key = tuple[Principal, str, tuple[str, ...]]


class QueueLimits(NamedTuple):
    """The limits of one broker."""

    members: int = 64
    """Each holds at most one fetch of each leader that no client has taken."""
    held: int = 100_000
    """Records that clients hold."""
    done: int = 64_000
    """Acknowledged receipts that are remembered, in 11 MB, the same number by each member: at least 1,000."""
    topic_sets: int = 8
    """Members that one user has in one group: a group has room for 200, from all brokers and clients."""


LIMITS = QueueLimits()


class QueueMembers:
    """All members of this broker, and the records that clients hold of them."""

    def __init__(
        self,
        cluster: ClusterClient,
        context: QueueContext,
        measures: QueueMeasures,
        limits: QueueLimits = LIMITS,
    ) -> None:
        self._cluster, self._context, self._limits = cluster.apart(AT_ONCE_MAX), context, limits
        self._members: dict[_Key, QueueMember] = {}
        self._by_number: dict[int, QueueMember] = {}
        self._next_number = 1
        self._member_ids: set[str] = set()
        """Those of the members, and of those that are leaving."""
        self._tasks = Tasks()
        self._is_looking = False
        self.measures = measures
        measures.held = lambda: self.held

    def members(self) -> Iterator[QueueMember]:
        yield from list(self._by_number.values())

    @property
    def held(self) -> int:
        """The number of records that clients hold."""
        return sum(len(member.deliveries) for member in self._by_number.values())

    async def take(
        self,
        cluster: ClusterClient,
        group_id: str,
        topics: Sequence[str],
        records_max: int,
        bytes_max: int,
        wait_s: float,
    ) -> TakeAnswer:
        """Take records for a client, on behalf of whom `cluster` sends requests. Raises HttpRefusal."""
        self._refuse_more(cluster.identity.principal)
        member = self._member(cluster, group_id, tuple(sorted(set(topics))))
        self.measures.takes += 1
        answer = await member.take(records_max, bytes_max, wait_s)
        self.measures.taken_records += len(answer.records)
        return answer

    def give_back(self, taken: Sequence[Taken]) -> None:
        """Release the records of an answer whose client has disconnected."""
        member = self._by_number.get(taken[0].receipt.member) if taken else None
        if member is not None:
            member.give_back(taken)

    async def acknowledge(
        self, group_id: str, receipts: Sequence[Receipt | None], acknowledge_type: int
    ) -> tuple[list[ErrorCode], int]:
        """Acknowledge records that this broker handed out. Return the outcomes, and the duration of locks in ms."""
        outcomes, lock_ms = [ErrorCode.invalid_record_state] * len(receipts), 0
        by_member: dict[QueueMember, list[tuple[int, Receipt]]] = {}
        for at, receipt in enumerate(receipts):
            member = None if receipt is None else self._by_number.get(receipt.member)
            if receipt is not None and member is not None and member.group_id == group_id:
                by_member.setdefault(member, []).append((at, receipt))
        for member, rows in by_member.items():
            codes = await member.acknowledge([receipt for _, receipt in rows], acknowledge_type)
            for (at, _), code in zip(rows, codes, strict=True):
                outcomes[at] = code
            lock_ms = max(lock_ms, member.lock_ms())
        refused = sum(code is not ErrorCode.none for code in outcomes)
        self.measures.acknowledgements += len(outcomes) - refused
        self.measures.refused_acknowledgements += refused
        return outcomes, lock_ms

    async def close(self) -> None:
        """Leave all groups."""
        members = list(self._by_number.values())
        self._members.clear()
        self._by_number.clear()
        await asyncio.gather(*(member.close() for member in members))
        await self._tasks.close()
        await self._cluster.close()

    def _member(self, cluster: ClusterClient, group_id: str, topics: tuple[str, ...]) -> QueueMember:
        key = cluster.identity.principal, group_id, topics
        member = self._members.get(key)
        if member is not None and member.refusal is None:
            return member
        if member is not None:
            self._end(key)
        principal = cluster.identity.principal
        self._make_room(principal, group_id)
        number, self._next_number = self._next_number, self._next_number + 1
        member_id = self._member_id(key)
        self._member_ids.add(member_id)
        own = self._cluster.on_behalf_of(cluster.identity)
        member = self._members[key] = self._by_number[number] = QueueMember(
            number, member_id, group_id, topics, own, self._context, partial(self._refuse_more, principal)
        )
        member.start()
        self._share_memory()
        if not self._is_looking:
            self._is_looking = True
            self._tasks.repeat(self._look, "look after queues")
        return member

    def _refuse_more(self, principal: Principal) -> None:
        """Raise HttpRefusal if clients hold too many records, those of this user or all together."""
        most = self._limits.held
        of_user = sum(len(member.deliveries) for key, member in self._members.items() if key[0] == principal)
        if of_user >= most // USER_SHARE:
            raise _too_much(f"You hold {of_user} records of queues at this broker: acknowledge them first.")
        if self.held >= most:
            raise _too_much(f"Clients of this broker hold {most} records of queues: acknowledge them first.")

    def _make_room(self, principal: Principal, group_id: str) -> None:
        """End a member that no client uses if there are too many, of this user or all together. Raises HttpRefusal."""
        most = self._limits.members
        of_user = [key for key in self._members if key[0] == principal]
        of_group = [key for key in of_user if key[1] == group_id]
        if len(of_group) >= self._limits.topic_sets:
            if not self._end_a_free_one(of_group):
                raise _too_much(
                    f"You already take from {len(of_group)} different sets of topics of the queue {group_id} at this"
                    " broker: name the same topics in all requests."
                )
        elif len(of_user) >= most // USER_SHARE:
            if not self._end_a_free_one(of_user):
                raise _too_much(
                    f"You already use {len(of_user)} queues at this broker: use another, or try again later."
                )
        elif len(self._members) >= most and not self._end_a_free_one(self._members):
            raise _too_much(f"This broker already serves {most} queues: use another broker, or try again later.")

    def _share_memory(self) -> None:
        """Have each member remember its part of the receipts that were acknowledged."""
        part = self._limits.done // max(len(self._by_number), 1)
        for member in self._by_number.values():
            member.deliveries.remember(part)

    def _end_a_free_one(self, keys: Iterable[_Key]) -> bool:
        """End the first of these members that no client uses. Return whether there is one."""
        free = next((key for key in keys if self._members[key].is_free), None)
        if free is not None:
            self._end(free)
        return free is not None

    def _end(self, key: _Key) -> None:
        member = self._members.pop(key)
        del self._by_number[member.number]
        self._share_memory()
        self._tasks.spawn(self._leave(member), "leave a queue's group")

    async def _leave(self, member: QueueMember) -> None:
        try:
            await member.close()
        finally:
            self._member_ids.discard(member.member_id)

    def _member_id(self, key: _Key) -> str:
        """Return an id for a member, the same after each start of the broker.

        A broker that was killed then joins as the member that the group still has. Otherwise this member would keep its
        partitions until its session expires, and no client would get their records.
        """
        names = (repr((self._context.broker_id, *map(str, key), attempt)) for attempt in count())
        ids = (str(uuid5(NAMESPACE_OID, name)) for name in names)
        # A member that has the first id may be leaving now.
        return next(member_id for member_id in ids if member_id not in self._member_ids)

    async def _look(self) -> None:
        await asyncio.sleep(LOOK_S)
        for key, member in list(self._members.items()):
            if self._members.get(key) is member:
                await member.look()
                if self._members.get(key) is not member:
                    continue
                if member.is_idle or (member.refusal is not None and member.is_free):
                    self._end(key)
            await asyncio.sleep(0)


def _too_much(sentence: str) -> HttpRefusal:
    return HttpRefusal(429, sentence, ErrorCode.throttling_quota_exceeded)
