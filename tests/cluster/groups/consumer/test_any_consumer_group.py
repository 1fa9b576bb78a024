"""Any interleaving of members, lost replies, failed writes, failovers and changes of topics: one owner a partition."""

from collections import Counter

import hypothesis.strategies as st
from consumer_group_scenario import REBALANCE_MS, SESSION_MS, ConsumerGroupScenario
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.consumer.state import ConsumerState

NAMES = ("anna", "ben", "carl", "dora")
TOPICS = ("flights", "planes", "trains")
ROUNDS = 16

names = st.sampled_from(NAMES)
subscriptions = st.sets(st.sampled_from(TOPICS), min_size=1)


class AnyConsumerGroup(RuleBasedStateMachine):
    """Clients of one group, of which some replies never arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ConsumerGroupScenario({"flights": 5, "planes": 3})

    def members(self) -> list[str]:
        """Return the clients that the coordinator still counts as members."""
        known = self.group.consumers.members.by_id
        return [name for name, client in self.group.clients.items() if client.id in known and client.epoch >= 0]

    @rule(name=names, topics=subscriptions, assignor=st.sampled_from(["uniform", "range", None]))
    def join(self, name: str, topics: set[str], assignor: str | None) -> None:
        if name not in self.members():
            self.group.clients.pop(name, None)
            self.group.join(name, *topics, assignor=assignor)

    @rule(name=names, is_lost=st.booleans())
    def beat(self, name: str, is_lost: bool) -> None:
        if name not in self.members():
            return
        if is_lost:
            client = self.group.clients[name]
            self.group.send(name, **({"owned": dict(client.owned)} if client.is_dirty else {}))
            # A client that has had no reply reports everything again.
            client.is_dirty = True
        else:
            self.group.beat(name)

    @rule(name=names, topics=subscriptions)
    def subscribe(self, name: str, topics: set[str]) -> None:
        if name in self.members():
            self.group.beat(name, topics=frozenset(topics))

    @rule(name=names)
    def leave(self, name: str) -> None:
        if name in self.members():
            self.group.leave(name)

    @rule(topic=st.sampled_from(TOPICS), size=st.integers(0, 7))
    def change_topic(self, topic: str, size: int) -> None:
        if size > self.group.sizes.get(topic, 0) or (size == 0 and topic in self.group.sizes):
            self.group.change_topic(topic, size)

    @rule()
    def fail_over(self) -> None:
        if self.group.log:
            self.group.reload()

    @rule(name=names)
    def fail_to_write(self, name: str) -> None:
        if name in self.members():
            self.group.log_code = ErrorCode.coordinator_not_available
            self.group.send(name, topics=frozenset(TOPICS))
            self.group.log_code = ErrorCode.none
            self.group.clients[name].is_dirty = True

    @rule(ms=st.sampled_from([1_000, SESSION_MS // 2, SESSION_MS + 1, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.group.pass_time(ms)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        owned = Counter(
            (topic_id, index)
            for name in self.members()
            for topic_id, indexes in self.group.clients[name].owned.items()
            for index in indexes
        )
        assert max(owned.values(), default=0) <= 1, owned

    def teardown(self) -> None:
        """In the end, everything that somebody reads is assigned, and nothing moves any more."""
        members = self.members()
        for _ in range(ROUNDS):
            for name in members:
                self.group.beat(name)
        wanted = {
            (topic, index)
            for name in members
            for topic in self.group.consumers.members.by_id[self.group.clients[name].id].topics
            for index in range(self.group.sizes.get(topic, 0))
        }
        owned = [self.group.owns(name) for name in members]
        assert set().union(*owned) == wanted
        assert sum(map(len, owned)) == len(wanted)
        known = self.group.consumers
        assert known.state in (ConsumerState.STABLE, ConsumerState.EMPTY)
        assert {member.id for member in known.members} == {self.group.clients[name].id for name in members}


AnyConsumerGroup.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyConsumerGroup = AnyConsumerGroup.TestCase
