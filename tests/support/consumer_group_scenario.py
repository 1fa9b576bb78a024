"""A scenario of one consumer group: clients act by name as the protocol asks, and the test advances the time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.config.group_configs import ConsumerConfig, GroupConfig
from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat, check_heartbeat
from cordwood.cluster.groups.consumer.group import ConsumerGroup
from cordwood.cluster.groups.consumer.loader import ConsumerLoader
from cordwood.cluster.groups.context import GroupContext, TopicMap
from cordwood.cluster.groups.exchange import (
    AppendRecords,
    Compute,
    Convert,
    HeartbeatAnswer,
    JoinAnswer,
    JoinReply,
    Rebalancing,
    RequestId,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.heartbeat import HeartbeatReply
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.target_assignment import Partitions
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import PartitionImage, TopicImage
from cordwood.storage.steps import at_once

GROUP = "group"
SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 45_000, 5_000, 60_000

Places = frozenset[tuple[str, int]]


@dataclass(slots=True)
class Client:
    """A client's own view of its membership."""

    id: str
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    """What it consumes."""
    assigned: Partitions | None = None
    """What the coordinator has last assigned to it."""
    is_dirty: bool = False
    """Whether it has to report what it owns."""


class ConsumerGroupScenario:
    """A group, its topics and its clients. Writes complete at once, unless `log_code` refuses them."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.sizes = {"flights": 6} if topics is None else dict(topics)
        self.ids: dict[str, UUID] = {}
        self._map: TopicMap | None = None
        self.now_ms = 1_000_000
        self.context = GroupContext(
            settings=GroupSettings(**settings),
            topics=self._topics,
            config=lambda _: GroupConfig(consumer=ConsumerConfig(SESSION_MS, HEARTBEAT_MS)),
            wall_clock=lambda: self.now_ms,
        )
        self.group: AnyGroup = ConsumerGroup(GROUP, self.context)
        self.clients: dict[str, Client] = {}
        self.log: dict[bytes, bytes] = {}
        self.written: list[bytes] = []
        """Keys of the records of the last step, in order."""
        self.log_code = ErrorCode.none
        self.failed_writes = 0
        self.reasons: list[str] = []
        self.computes: list[Compute] = []
        self.holds_computations = False
        self.replies: dict[RequestId, HeartbeatReply | JoinReply | SyncReply | ErrorCode] = {}
        self._numbers = count(1)

    @property
    def consumers(self) -> ConsumerGroup:
        assert isinstance(self.group, ConsumerGroup), f"it is a {self.group.kind.value} group"
        return self.group

    def change_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or change its number of partitions; 0 deletes it."""
        if partitions:
            self.sizes[name] = partitions
        else:
            del self.sizes[name]
            self.ids.pop(name, None)
        self._map = None
        self.group.topics_changed(frozenset({name}))

    def send(self, name: str, **fields: Any) -> HeartbeatReply | None:
        """Send one heartbeat of a client as it is given. Return the reply, or None while it waits."""
        client = self.clients.setdefault(name, Client(f"id-{name}"))
        base: dict[str, Any] = {
            "member_id": client.id,
            "member_epoch": client.epoch,
            "client_id": name,
            "client_host": "/127.0.0.1",
        }
        request_id = RequestId(next(self._numbers))
        request = ConsumerHeartbeat(**{**base, **fields})
        try:
            check_heartbeat(GROUP, request, self.context.settings.consumer_assignors)
        except Refused as refusal:
            return HeartbeatReply(refusal.code, refusal.message)
        self.consumers.consumer_heartbeat(request, request_id, f"made-{next(self._numbers)}", self.now_ms)
        self.perform()
        reply = self.replies.get(request_id)
        assert reply is None or isinstance(reply, HeartbeatReply | ErrorCode)
        return HeartbeatReply(reply) if isinstance(reply, ErrorCode) else reply

    def join(self, name: str, *topics: str, **fields: Any) -> HeartbeatReply:
        """Join with the topics, `flights` by default. Fields are those of the request."""
        client = self.clients.setdefault(name, Client(f"id-{name}"))
        client.epoch, client.owned, client.instance_id = 0, {}, fields.get("instance_id")
        base: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}}
        if "regex" not in fields or topics:
            base["topics"] = frozenset(topics or ("flights",))
        reply = self.send(name, **{**base, **fields})
        assert reply is not None, "it still waits for its assignment"
        self._take(client, reply)
        return reply

    def beat(self, name: str, **fields: Any) -> HeartbeatReply:
        """Send a client's next heartbeat, with what it owns if that has changed. It then does what the reply says."""
        client = self.clients[name]
        if client.is_dirty and "owned" not in fields:
            fields["owned"] = dict(client.owned)
        reply = self.send(name, **fields)
        assert reply is not None, "it still waits for its assignment"
        client.is_dirty = False
        self._take(client, reply)
        return reply

    def leave(self, name: str, epoch: int = -1) -> HeartbeatReply:
        client = self.clients[name]
        reply = self.send(name, member_epoch=epoch, instance_id=client.instance_id)
        assert reply is not None
        client.owned = {}
        return reply

    def settle(self, *names: str, rounds: int = 12) -> None:
        """Have all clients send heartbeats until nothing changes any more."""
        for _ in range(rounds):
            for name in names or tuple(self.clients):
                self.beat(name)

    def owns(self, name: str) -> set[tuple[str, int]]:
        """Return the partitions that a client consumes."""
        names = {topic_id: topic for topic, topic_id in self.ids.items()}
        owned = self.clients[name].owned
        return {(names.get(topic_id, "deleted"), index) for topic_id, indexes in owned.items() for index in indexes}

    def counts(self) -> dict[str, int]:
        return {name: len(self.owns(name)) for name in self.clients}

    def pass_time(self, ms: int, *alive: str) -> None:
        """Advance the time over every deadline. The `alive` clients send heartbeats."""
        until = self.now_ms + ms
        while self.now_ms < until:
            step = until if not alive else min(until, self.now_ms + HEARTBEAT_MS)
            due = self.group.next_deadline()
            self.now_ms = step if due is None else max(self.now_ms, min(step, due))
            for name in alive:
                self.beat(name)
            self.group.tick(self.now_ms)
            self.perform()

    def run_computation(self) -> Callable[[], None]:
        """Run the computation that is held. Return a function that gives the group its result."""
        (compute,) = self.computes
        self.computes.clear()
        result = at_once(compute.steps())

        def end() -> None:
            self.group.computed(compute, result, self.now_ms)
            self.perform()

        return end

    def finish_computations(self) -> None:
        """Have the computations end that were held."""
        while self.computes:
            compute = self.computes.pop(0)
            self.group.computed(compute, at_once(compute.steps()), self.now_ms)
            self.perform()

    def reload(self) -> None:
        """Restore the group from its records, as another coordinator does."""
        loader = ConsumerLoader(self.context)
        for key, value in self.log.items():
            fields = FieldReader(key)
            version = fields.int16()
            if version in loader.key_versions:
                at_once(loader.take(version, fields, value))
        (restored,) = [group for group in loader.groups() if group is not None]
        self.group = restored
        self.group.begin_sessions(self.now_ms)
        self.perform()

    def types_written(self) -> list[int]:
        """Return the key versions of the records of the last step."""
        return [int.from_bytes(key[:2], "big") for key in self.written]

    def perform(self) -> None:
        """Execute the group's effects."""
        self.written = []
        group = self.group
        for effect in at_once(group.take_effects()):
            match effect:
                case AppendRecords():
                    self._append(effect)
                case Convert(steps, answers):
                    become = at_once(steps())
                    self._store(become.contents)
                    self._answer((*answers, *become.answers))
                    self.group = become.successor
                case Compute():
                    self.computes.append(effect)
                case Rebalancing(reason):
                    self.reasons.append(reason)
                case _:
                    raise AssertionError(f"no effect of a consumer group: {effect}")
        if not self.holds_computations:
            self.finish_computations()

    def _append(self, append: AppendRecords) -> None:
        if self.log_code is not ErrorCode.none and append.contents:
            self.failed_writes += 1
            for answer in append.answers:
                self.replies[answer.request_id] = self.log_code
            self.group.not_appended(append, self.log_code, self.now_ms)
            return
        self._store(append.contents)
        self._answer(append.answers)

    def _store(self, contents: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in contents:
            self.written.append(key)
            if value is None:
                self.log.pop(key, None)
            else:
                self.log[key] = value

    def _answer(self, answers: Iterable[Any]) -> None:
        for answer in answers:
            assert isinstance(answer, HeartbeatAnswer | JoinAnswer | SyncAnswer)
            assert answer.request_id not in self.replies, "a request has one reply"
            self.replies[answer.request_id] = answer.reply  # type: ignore[assignment]

    def _take(self, client: Client, reply: HeartbeatReply) -> None:
        """Do what a reply says: revoke at once, then consume what was added."""
        if reply.code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            client.owned, client.epoch = {}, 0
        if reply.code is not ErrorCode.none:
            return
        client.epoch = reply.member_epoch
        if reply.assignment is not None:
            client.assigned = reply.assignment
            client.is_dirty = True
            client.owned = dict(reply.assignment)

    def _topics(self) -> TopicMap:
        if self._map is not None:
            return self._map
        by_name = {name: self._topic(name, size) for name, size in self.sizes.items()}
        self._map = TopicMap(by_name, {topic.id: topic for topic in by_name.values()}, len(self.sizes))
        return self._map

    def _topic(self, name: str, size: int) -> TopicImage:
        topic_id = self.ids.setdefault(name, UUID(int=1000 + next(self._numbers)))
        broker = BrokerId(1)
        return TopicImage(topic_id, name, (PartitionImage((broker,), (broker,), broker),) * size)
