"""Assignors of consumer groups: everything is assigned once, evenly, and stays where it is."""

from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cordwood.cluster.groups.consumer.assignors import (
    ASSIGNORS,
    Assigned,
    GroupToAssign,
    Subscriber,
    range_,
    uniform,
)
from cordwood.storage.steps import at_once

TOPICS = [UUID(int=number) for number in range(4)]
NONE: dict[UUID, frozenset[int]] = {}

groups = st.lists(st.tuples(st.sets(st.sampled_from(TOPICS), min_size=1), st.booleans()), min_size=1, max_size=7)
sizes = st.fixed_dictionaries({topic_id: st.integers(1, 9) for topic_id in TOPICS})


def group_of(subscriptions: dict[str, set[UUID]], counts: dict[UUID, int], before: Assigned) -> GroupToAssign:
    subscribers = [
        Subscriber(name, None, frozenset(topics), before.get(name, NONE)) for name, topics in subscriptions.items()
    ]
    return GroupToAssign(subscribers, counts)


def places(assigned: Assigned) -> list[tuple[UUID, int]]:
    return [(topic, index) for own in assigned.values() for topic, indexes in own.items() for index in indexes]


def size_of(assigned: Assigned, name: str) -> int:
    return sum(map(len, assigned[name].values()))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups=groups, counts=sizes, gone=st.integers(0, 6))
def test_all_is_assigned_once_to_readers(
    name: str, groups: list[tuple[set[UUID], bool]], counts: dict[UUID, int], gone: int
) -> None:
    subscriptions = {f"m{number}": topics for number, (topics, _) in enumerate(groups)}
    before: Assigned = {}
    for _ in range(2):
        assigned = at_once(ASSIGNORS[name](group_of(subscriptions, counts, before)))
        read = set().union(*subscriptions.values())
        assert sorted(places(assigned)) == sorted((t, index) for t in read for index in range(counts[t]))
        assert all(own.keys() <= subscriptions[member] for member, own in assigned.items())
        before = assigned
        if len(subscriptions) > 1:
            subscriptions.pop(f"m{gone}", None)


@given(st.integers(1, 9), st.integers(1, 9), sizes)
def test_uniform_is_even_and_moves_no_more_than_it_must(first: int, second: int, counts: dict[UUID, int]) -> None:
    everything = set(TOPICS)
    total = sum(counts.values())
    before: Assigned = {}
    for size in (first, second):
        subscriptions = {f"m{number}": everything for number in range(size)}
        assigned = at_once(uniform(group_of(subscriptions, counts, before)))
        shares = [size_of(assigned, name) for name in assigned]
        assert max(shares) - min(shares) <= 1
        if before:
            stay = set(before) & set(assigned)
            kept = sum(len(set(places({"": before[name]})) & set(places({"": assigned[name]}))) for name in stay)
            quota, extra = divmod(total, size)
            had = sorted((size_of(before, name) for name in stay), reverse=True)
            room = [min(count, quota + (place < extra)) for place, count in enumerate(had)]
            assert kept == sum(room), "each member keeps what its share allows"
        before = assigned


def test_uniform_evens_out_different_subscriptions() -> None:
    first, second = TOPICS[:2]
    subscriptions = {"a": {first, second}, "b": {second}, "c": {first}}
    assigned = at_once(uniform(group_of(subscriptions, {first: 4, second: 4}, {"a": {first: frozenset(range(4))}})))
    assert sorted(size_of(assigned, name) for name in assigned) == [2, 3, 3]


def test_range_gives_the_same_range_of_each_topic() -> None:
    first, second = TOPICS[:2]
    subscriptions = {name: {first, second} for name in ("a", "b")}
    assigned = at_once(range_(group_of(subscriptions, {first: 3, second: 3}, {})))
    assert assigned["a"] == {first: frozenset({0, 1}), second: frozenset({0, 1})}
    assert assigned["b"] == {first: frozenset({2}), second: frozenset({2})}


def test_range_keeps_static_members_in_their_order() -> None:
    def ranges(*members: tuple[str, str | None]) -> list[frozenset[int]]:
        topics = frozenset(TOPICS[:1])
        subscribers = [Subscriber(member_id, instance_id, topics, NONE) for member_id, instance_id in members]
        assigned = at_once(range_(GroupToAssign(subscribers, {TOPICS[0]: 3})))
        return [assigned[member_id].get(TOPICS[0], frozenset()) for member_id, _ in members]

    assert ranges(("z", "i1"), ("a", None), ("m", "i2")) == [frozenset({0}), frozenset({2}), frozenset({1})]
    assert ranges(("b", "i1"), ("a", None), ("c", "i2")) == [frozenset({0}), frozenset({2}), frozenset({1})]
