"""The simple assignor: what holds of every assignment."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.groups.share.assignor import assign
from cordwood.cluster.groups.target_assignment import Partitions
from cordwood.storage.steps import at_once

TOPICS = [UUID(int=number) for number in range(1, 5)]
Subscriptions = dict[str, frozenset[UUID]]
Sets = dict[UUID, frozenset[int]]

topic_sets = st.frozensets(st.sampled_from(TOPICS))
subscriptions = st.dictionaries(st.sampled_from("abcdefghij"), topic_sets, max_size=10)
partitions = st.dictionaries(
    st.sampled_from(TOPICS), st.integers(1, 12).map(lambda count: frozenset(range(count))), max_size=4
)
held = st.dictionaries(
    st.sampled_from("abcdefghij"),
    st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14), min_size=1)),
)


def assigned(who: Subscriptions, what: Sets, before: dict[str, Partitions]) -> dict[str, Partitions]:
    return at_once(assign(who, what, before))


@given(subscriptions, partitions, held)
def test_every_assignment_covers_its_topics_and_no_others(
    who: Subscriptions, what: Sets, before: dict[str, Partitions]
) -> None:
    found = assigned(who, what, before)
    assert found.keys() == who.keys()
    for member, topics in found.items():
        assert topics.keys() <= who[member]
        assert all(indexes and indexes <= what[topic] for topic, indexes in topics.items())
    for topic, indexes in what.items():
        readers = [member for member in who if topic in who[member]]
        covered = {index for member in readers for index in found[member].get(topic, ())}
        assert covered == (indexes if readers else set())


@given(st.integers(1, 30), topic_sets, partitions, held)
def test_members_with_the_same_topics_are_balanced_within_one(
    count: int, topics: frozenset[UUID], what: Sets, before: dict[str, Partitions]
) -> None:
    who = {chr(ord("a") + number): topics for number in range(count)}
    found = assigned(who, what, before)
    sizes = [sum(map(len, one.values())) for one in found.values()]
    assert max(sizes) - min(sizes) <= 1
    sharing: dict[tuple[UUID, int], int] = {}
    for one in found.values():
        for topic, indexes in one.items():
            for index in indexes:
                sharing[topic, index] = sharing.get((topic, index), 0) + 1
    assert len(set(sharing.values())) <= 1


@given(subscriptions, partitions)
def test_members_keep_what_they_have_if_nothing_changes(who: Subscriptions, what: Sets) -> None:
    first = assigned(who, what, {})
    assert assigned(who, what, first) == first


def test_a_member_that_comes_takes_only_its_share() -> None:
    what, topics = {TOPICS[0]: frozenset(range(100))}, frozenset(TOPICS[:1])
    nine = assigned({str(number): topics for number in range(9)}, what, {})
    ten = assigned({str(number): topics for number in range(10)}, what, nine)
    moved = sum(len(nine[member][TOPICS[0]] - ten[member][TOPICS[0]]) for member in nine)
    assert len(ten["9"][TOPICS[0]]) == 10
    assert moved == 10


def test_members_give_up_what_leaves_another_without_a_choice() -> None:
    topic, topics = TOPICS[0], frozenset(TOPICS[:1])
    first, second = {topic: frozenset({0})}, {topic: frozenset({1})}
    found = assigned(dict.fromkeys("abc", topics), {topic: frozenset({0, 1})}, {"a": second, "b": first, "c": first})
    assert found["a"] == {topic: frozenset({0, 1})}
    assert found["b"] != found["c"]
