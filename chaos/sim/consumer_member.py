"""Simulated members of groups of the consumer protocol (KIP-848), and the same programs with the classic protocol.

A member program has one life after the other: it joins, reads, commits and gives partitions back when it is asked to,
until it leaves, dies in silence, or restarts. A life has one of the two protocols, so groups are migrated member by
member.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.classic_member import ClassicLife
from cordwood.chaos.sim.group_coordinator import MOVED
from cordwood.chaos.sim.kafka import duration, message, part
from cordwood.chaos.sim.membership import MembershipLost, SimulatedMembership
from cordwood.cluster.kafka.api_keys import ApiKey

VERSION = 1
LEAVING, LEAVING_FOR_A_WHILE = -1, -2
"""Epochs of a heartbeat that ends a membership; the second keeps a static member's partitions."""
REBALANCE_S = 4.0
"""The time that a member has to give partitions back."""
SILENCE_S = 5.0
"""Longer than the session of a member."""
COMMIT_INTERVAL_S, IDLE_S = 0.5, 0.1
BEAT_S = 0.3


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """The parameters of one member program."""

    group: str
    group_number: int
    assignor: str | None = None
    pattern: str | None = None
    """A regular expression for the topics; None for a subscription by name."""
    is_static: bool = False
    life_s: float = 5.0
    """The mean time until the member leaves, dies or restarts."""
    slow_share: float = 0.0
    """The share of revocations for which the member takes time."""
    lost_share: float = 0.0
    """The share of heartbeats whose answer is lost."""
    classic_share: float = 0.0
    """The share of lives with the classic protocol."""


class MemberLife(Protocol):
    """A membership from its join to its end."""

    async def step(self) -> None:
        """Send a heartbeat if one is due, read, and commit. Raises OSError, MembershipLost."""

    async def leave(self) -> None:
        """Leave the group. Raises OSError."""

    def begin_again(self) -> None:
        """Forget the membership: the coordinator does."""


class SimulatedConsumerMember:
    """One member program. After `rest` it stays in the group."""

    def __init__(self, plan: MemberPlan, membership: SimulatedMembership) -> None:
        self._plan, self._of = plan, membership
        self._client, self._rng = membership.client, membership.client.rng
        self.is_resting = False
        membership.has_lasting_epochs = plan.classic_share == 0
        membership.instance_id = f"instance-{membership.number}" if plan.is_static else None

    @property
    def group(self) -> str:
        return self._plan.group

    def rest(self) -> None:
        """Do not leave, die or restart any more."""
        self.is_resting = True

    def owns(self, partition: int) -> bool:
        """Return whether the member has a partition, as far as it knows."""
        return partition in self._of.owned

    def position(self, partition: int) -> int:
        """Return the program's last position in a partition."""
        return self._of.readers[partition].position

    async def run(self) -> None:
        """Run one life after the other, forever."""
        while self._client.topic_id is None:
            await self._client.refresh_patiently()
        while True:
            is_classic = self._rng.random() < self._plan.classic_share
            self._of.member_id, self._of.epoch = "", 0
            life: MemberLife = ClassicLife(self._of) if is_classic else _ConsumerLife(self._plan, self._of)
            self._client.did("member-joins-with-the-classic-protocol" if is_classic else "member-joins")
            ends_s = self._client.loop.time() + self._rng.expovariate(1 / self._plan.life_s)
            while self.is_resting or self._client.loop.time() < ends_s:
                await self._step(life)
            await self._end(life)

    async def _step(self, life: MemberLife) -> None:
        try:
            await life.step()
        except MembershipLost:
            self._client.did("member-fenced")
            self._of.drop_all()
            life.begin_again()
            await asyncio.sleep(self._rng.uniform(0.0, IDLE_S))
        except OSError:
            await self._client.refresh_patiently()

    async def _end(self, life: MemberLife) -> None:
        """End a life in one of the ways of real programs."""
        fate = self._rng.random()
        if fate < 0.4:
            self._client.did("member-leaves-for-a-while" if self._plan.is_static else "member-leaves")
            with contextlib.suppress(OSError, MembershipLost):
                await self._of.commit(frozenset(self._of.owned))
            self._of.drop_all()
            with contextlib.suppress(OSError, MembershipLost):
                await life.leave()
        elif fate < 0.7:
            self._client.did("member-dies")
            self._client.hang_up()
            self._of.drop_all()
            await asyncio.sleep(SILENCE_S)
        else:
            self._client.did("member-restarts")
            self._client.hang_up()
            self._of.drop_all()
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0.0, 2.0))))


class _ConsumerLife:
    """One membership in the consumer protocol."""

    def __init__(self, plan: MemberPlan, membership: SimulatedMembership) -> None:
        self._plan, self._of, self._client = plan, membership, membership.client
        self._rng = self._client.rng
        self._of.member_id = str(UUID(int=self._rng.getrandbits(128)))
        self._is_full = True
        """Whether the next heartbeat has all that the member is: the coordinator may not know it."""
        self._reported: tuple[Any, ...] = ()
        """The partitions of all topics that the coordinator knows to be the member's."""
        self._others: tuple[Any, ...] = ()
        """Partitions of other topics, which are only kept."""
        self._beat_at_s = self._commit_at_s = 0.0

    async def step(self) -> None:
        """Send a heartbeat if one is due, read, and commit. Raises OSError, MembershipLost."""
        await self._beat_if_due()
        for partition in sorted(self._of.owned):
            if partition in self._of.owned:
                await self._of.poll(partition)
            await self._beat_if_due()
        if not self._of.owned:
            await asyncio.sleep(IDLE_S)
        if self._client.loop.time() >= self._commit_at_s:
            self._commit_at_s = self._client.loop.time() + COMMIT_INTERVAL_S
            await self._of.commit(frozenset(self._of.owned))

    def begin_again(self) -> None:
        """Join again with the next heartbeat."""
        self._of.epoch, self._is_full, self._others = 0, True, ()
        self._beat_at_s = 0.0

    async def leave(self) -> None:
        """Send the last heartbeat. Raises OSError."""
        epoch = LEAVING_FOR_A_WHILE if self._plan.is_static else LEAVING
        request = message(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            VERSION,
            group_id=self._of.group,
            member_id=self._of.member_id,
            member_epoch=epoch,
            instance_id=self._of.instance_id,
            topic_partitions=(),
        )
        await self._of.coordinator.ask(request)

    async def _beat_if_due(self) -> None:
        if self._client.loop.time() >= self._beat_at_s:
            assignment = await self._beat()
            if assignment is not None:
                await self._reconcile(assignment)

    async def _beat(self) -> Any:
        """Send a heartbeat. Return the assignment in its answer, if it has one. Raises OSError, MembershipLost."""
        of, client = self._of, self._client
        named = frozenset(of.owned)
        partitions = self._partitions(named)
        request = self._request(partitions)
        # If no answer comes, the coordinator may or may not know what this request says.
        self._is_full = True
        if self._rng.random() < self._plan.lost_share:
            await self._lose_answer(request)
        invoked_ns = client.now_ns
        answer = await of.coordinator.ask(request)
        self._beat_at_s = client.loop.time() + BEAT_S
        code = answer.error_code
        if code is ErrorCode.none:
            self._is_full, self._reported = False, partitions
            of.got_epoch(int(answer.member_epoch), invoked_ns)
            of.confirmed(named, invoked_ns)
            return answer.assignment
        if code in MOVED:
            of.coordinator.forget()
            raise OSError(code.name)
        if code is ErrorCode.unreleased_instance_id:
            # A static member's predecessor has to leave first, or its session to end.
            client.did("instance-unreleased")
            raise OSError(code.name)
        lost = {ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id}
        if self._plan.classic_share:
            # It was removed, and the group has become a classic one without it.
            lost.add(ErrorCode.group_id_not_found)
        if code not in lost:
            of.alarm("refused-heartbeat", f"{client.name} got {code!r} in epoch {of.epoch}: {answer.error_message}")
        raise MembershipLost(code.name)

    def _request(self, partitions: tuple[Any, ...]) -> Any:
        plan, of = self._plan, self._of
        is_full = self._is_full or of.epoch == 0
        fields: dict[str, Any] = {}
        if is_full:
            by_name = plan.pattern is None
            fields = {
                "instance_id": of.instance_id,
                "rebalance_timeout": duration(REBALANCE_S),
                "subscribed_topic_names": (self._client.topic,) if by_name else None,
                "subscribed_topic_regex": plan.pattern,
                "server_assignor": plan.assignor,
            }
        is_sent = is_full or partitions != self._reported
        return message(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            VERSION,
            group_id=of.group,
            member_id=of.member_id,
            member_epoch=of.epoch,
            topic_partitions=partitions if is_sent else None,
            **fields,
        )

    def _partitions(self, named: frozenset[int]) -> tuple[Any, ...]:
        own = part(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            "TopicPartitions",
            VERSION,
            topic_id=self._client.topic_id,
            partitions=tuple(sorted(named)),
        )
        return (*((own,) if named else ()), *self._others)

    async def _lose_answer(self, request: Any) -> None:
        """Send a heartbeat, and lose the connection before its answer. The request is then sent again."""
        line = self._client.set_aside(await self._of.coordinator.address())
        if line is not None and line.is_open:
            self._client.did("heartbeat-answer-lost")
            answer = line.ask(request)
            answer.add_done_callback(lambda done: done.exception())
            await asyncio.sleep(self._rng.choice((0.0, 0.01)))
            line.hang_up()

    async def _reconcile(self, assignment: Any) -> None:
        """Give partitions back, take new ones, and say so. Raises OSError, MembershipLost."""
        of, client, api = self._of, self._client, ApiKey.CONSUMER_GROUP_HEARTBEAT
        target = {row.topic_id: tuple(map(int, row.partitions)) for row in assignment.topic_partitions}
        mine = frozenset(target.pop(client.topic_id, ()))
        self._others = tuple(
            part(api, "TopicPartitions", VERSION, topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in target.items()
        )
        revoked = frozenset(of.owned) - mine
        if revoked:
            client.did("partitions-revoked")
            await self._give_back(revoked)
        for partition in sorted(mine - of.owned.keys()):
            of.got(partition)
        self._beat_at_s = client.loop.time()

    async def _give_back(self, revoked: frozenset[int]) -> None:
        of, client = self._of, self._client
        with contextlib.suppress(OSError):
            await of.commit(revoked)
        if self._rng.random() < self._plan.slow_share:
            client.did("revocation-slow")
            until_s = client.loop.time() + self._rng.uniform(0.0, 1.5 * REBALANCE_S)
            while client.loop.time() < until_s:
                await asyncio.sleep(BEAT_S)
                await self._beat()
        of.drop(revoked)
