"""A share group in verbs: heartbeats, time, topics, share states; its records are kept as the log would keep them."""

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.config.group_configs import GroupConfig
from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.context import GroupContext, TopicMap
from cordwood.cluster.groups.exchange import AppendRecords, Compute, HeartbeatAnswer, RequestId
from cordwood.cluster.groups.heartbeat import HeartbeatReply
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.share.exchange import Discard, Initialize, ShareHeartbeat
from cordwood.cluster.groups.share.group import ShareGroup
from cordwood.cluster.groups.share.loader import ShareLoader
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import PartitionImage, TopicImage
from cordwood.storage.steps import at_once

PARTITION = PartitionImage((BrokerId(1),), (BrokerId(1),), BrokerId(1))

Partitions = dict[str, list[int]]
"""Partitions by topic name."""


class ShareGroupScenario:
    """One group, and the topics of its cluster. Its effects are executed at once, or kept."""

    def __init__(self, *, size_max: int = 200, **topics: int) -> None:
        """`topics` are the numbers of partitions by name."""
        self.topics: dict[str, TopicImage] = {}
        self.config = GroupConfig()
        self.context = GroupContext(GroupSettings(share_size_max=size_max), self._topics, lambda _: self.config)
        self.group = ShareGroup("workers", self.context)
        self.now_ms = 0
        self.log: dict[bytes, bytes] = {}
        self.replies: dict[int, HeartbeatReply] = {}
        self.holds: tuple[type, ...] = ()
        """The kinds of effects that wait for `release`."""
        self.held: list[Initialize | Compute] = []
        self.discarded: list[Discard] = []
        self.refuses_writes = False
        self._requests = 0
        for name, count in topics.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, or add partitions to it."""
        known = self.topics.get(name)
        topic_id = UUID(int=len(self.topics) + 1) if known is None else known.id
        self.topics[name] = TopicImage(topic_id, name, (PARTITION,) * partitions)
        self.group.topics_changed(frozenset({name}))

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.group.topics_changed(frozenset({name}))
        self.group.forget_topics()
        self.perform()

    def send(self, member: str, epoch: int, *topics: str, rack: str | None = None) -> int:
        """Send a heartbeat. Return its number."""
        subscribed = frozenset(topics) if topics else None
        request = ShareHeartbeat(member, epoch, subscribed, rack, "client", "/127.0.0.1")
        self._requests += 1
        self.group.heartbeat(request, RequestId(self._requests), self.now_ms)
        self.perform()
        return self._requests

    def heartbeat(self, member: str, epoch: int, *topics: str, rack: str | None = None) -> HeartbeatReply:
        return self.replies[self.send(member, epoch, *topics, rack=rack)]

    def join(self, member: str, *topics: str) -> HeartbeatReply:
        reply = self.heartbeat(member, 0, *topics)
        assert reply.code is ErrorCode.none, reply
        return reply

    def beat(self, member: str) -> Partitions | None:
        """Send a heartbeat of the epoch that the group knows. Return the assignment in the reply, if it has one."""
        reply = self.heartbeat(member, self.epoch_of(member))
        assert reply.code is ErrorCode.none, reply
        return None if reply.assignment is None else self.named(reply.assignment)

    def leave(self, member: str) -> HeartbeatReply:
        return self.heartbeat(member, -1)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        while (deadline := self.group.next_deadline()) is not None and deadline <= self.now_ms:
            self.group.tick(self.now_ms)
            self.perform()

    def perform(self) -> None:
        """Execute the group's effects."""
        for effect in at_once(self.group.take_effects()):
            self._perform(effect)

    def release(self, *, fails: bool = False) -> None:
        """Execute what was kept, and what follows."""
        held, self.held, self.holds = self.held, [], ()
        for effect in held:
            self._finish(effect, fails=fails)

    def _finish(self, effect: Initialize | Compute, *, fails: bool = False) -> None:
        match effect:
            case Initialize(partitions):
                done, failed = ((), tuple(partitions)) if fails else (tuple(partitions), ())
                self.group.initialized(done, failed, self.now_ms)
            case Compute(steps):
                self.group.computed(effect, at_once(steps()), self.now_ms)
        self.perform()

    def _perform(self, effect: Any) -> None:
        match effect:
            case AppendRecords(contents, answers):
                if self.refuses_writes:
                    self.group.not_appended(effect, ErrorCode.not_enough_replicas, self.now_ms)
                    return
                for key, value in contents:
                    if value is None:
                        self.log.pop(key, None)
                    else:
                        self.log[key] = value
                for answer in answers:
                    self._perform(answer)
            case HeartbeatAnswer(request_id, reply):
                self.replies[request_id] = reply
            case Initialize() | Compute():
                if isinstance(effect, self.holds):
                    self.held.append(effect)
                else:
                    self._finish(effect)
            case Discard(_, topic_ids):
                self.discarded.append(effect)
                self.group.discarded(topic_ids, (), self.now_ms)
                self.perform()

    def reload(self) -> None:
        """Restore the group from its records, as the next coordinator does."""
        loader = ShareLoader(self.context)
        for key, value in self.log.items():
            fields = FieldReader(key)
            at_once(loader.take(fields.int16(), fields, value))
        (self.group,) = filter(None, loader.groups())
        self.group.begin_sessions(self.now_ms)

    def epoch_of(self, member: str) -> int:
        return next(one.epoch for one in self.group.members if one.id == member)

    def assigned(self) -> dict[str, Partitions]:
        """Return the partitions of each member, as of its last heartbeat."""
        return {member.id: self.named(member.assigned) for member in self.group.members}

    def settle(self) -> dict[str, Partitions]:
        """Send a heartbeat of each member. Return the partitions of each."""
        for member in [one.id for one in self.group.members]:
            self.beat(member)
        return self.assigned()

    def named(self, partitions: Any) -> Partitions:
        names = {topic.id: name for name, topic in self.topics.items()}
        return {names[topic_id]: sorted(indexes) for topic_id, indexes in sorted(partitions.items())}

    def _topics(self) -> TopicMap:
        return TopicMap(self.topics, {topic.id: topic for topic in self.topics.values()})
